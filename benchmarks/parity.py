"""Hidden states and masked-word logits beside `transformers`, on real text and real weights.

For each model 200 real texts of 1 to 512 tokens, three quarters singles and one quarter pairs, go through Bertsmith
in one mixed batch and one at a time, and through `transformers` one at a time. The difference is the largest over all
texts and layers, relative to the largest value of the same layer.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

import harness
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.data.batches import PackedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.vocab.tokenizer import Encoding, Tokenizer

TARGET = 1e-5
CORPORA = {"minilm": "en-general.jsonl", "m3e-small": "zh-web.jsonl", "antiberty": "en-general.jsonl"}
RESIDUES = set("ACDEFGHIKLMNPQRSTVWY")


def documents(path: Path, name: str) -> Iterator[str]:
    """Documents of a corpus; for the protein model, their letters that are residues."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            yield " ".join(letter for letter in text.upper() if letter in RESIDUES) if name == "antiberty" else text


def real_encodings(name: str, tokenizer: Tokenizer, data: Path, count: int) -> list[Encoding]:
    """Starts of documents cut to lengths drawn evenly on a logarithmic scale; every fourth is a pair."""
    rng = random.Random(0)
    encodings: list[Encoding] = []
    texts = documents(data / "corpus" / CORPORA[name], name)
    while len(encodings) < count:
        text = next(texts)[:6000]
        length = max(4, min(512, round(2 ** rng.uniform(1, 9.2))))
        pair = next(texts)[:6000] if len(encodings) % 4 == 3 else None
        encodings.append(tokenizer.encode(text if length > 4 else text[:1], pair, max_length=length))
    return encodings


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Relative to the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@torch.inference_mode()
def compare(name: str, data: Path, count: int) -> dict[str, Any]:
    """The largest differences of one model."""
    bundle = load_bundle(name)
    assert bundle.tokenizer is not None
    model, folder = bundle.model, find_model(name)[0]
    headed = model.kind == "mlm"
    family = transformers.BertForMaskedLM if headed else transformers.BertModel
    theirs = family.from_pretrained(folder).eval()
    encodings = real_encodings(name, bundle.tokenizer, data, count)
    batch = PackedBatch.of([row.ids for row in encodings], [row.type_ids for row in encodings])
    sizes = batch.lengths.tolist()
    mixed = model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, hidden_states=True).hidden_states
    states = [state.split(sizes) for state in mixed]
    worst = {"mixed": 0.0, "alone": 0.0, "logits": 0.0 if headed else None, "lengths": sizes}
    for number, row in enumerate(encodings):
        ids, types = torch.tensor(row.ids), torch.tensor(row.type_ids)
        reference = theirs(ids[None], token_type_ids=types[None], output_hidden_states=True)
        alone = model.encoder(ids, types, torch.tensor([len(ids)]), hidden_states=True).hidden_states
        for layer, other in enumerate(reference.hidden_states):
            worst["mixed"] = max(worst["mixed"], difference(states[layer][number], other[0]))
            worst["alone"] = max(worst["alone"], difference(alone[layer], other[0]))
        if headed:
            logits = model.mlm(states[-1][number], model.encoder.embeddings.word.weight)
            worst["logits"] = max(worst["logits"], difference(logits, reference.logits[0]))
        sys.stderr.write(f"\r{name}: {number + 1} of {count}")
    sys.stderr.write("\n")
    return worst


def main() -> int:
    """Compare, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder with corpus/")
    arguments.add_argument("--count", type=int, default=200)
    options = arguments.parse_args()
    if not (options.data / "corpus").is_dir():
        sys.exit(f"{options.data}: has no corpus/; name the folder with --data")
    rows, met = [], True
    for name in CORPORA:
        worst = compare(name, options.data, options.count)
        figures = [worst[key] for key in ("mixed", "alone", "logits")]
        met = met and all(figure is None or figure <= TARGET for figure in figures)
        shown = " | ".join("no head" if figure is None else f"{figure:.1e}" for figure in figures)
        rows.append(f"| {name} | {len(worst['lengths'])}, {min(worst['lengths'])}–{max(worst['lengths'])} | {shown} |")
    harness.show(
        "parity",
        "Outputs beside `transformers`",
        [
            (__doc__ or "").strip(),
            "",
            f"Target {TARGET:.0e}: {'met' if met else '**not met**'}.",
            "",
            f"Peak of this machine in float32: {harness.describe_peaks([harness.measure_peak()])}. Operations are not "
            "counted: nothing is timed.",
            "",
            "| model | texts, tokens | one mixed batch | one at a time | masked-word logits |",
            "|---|---|---|---|---|",
            *rows,
            "",
            harness.versions("transformers"),
        ],
        keep=options.keep,
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
