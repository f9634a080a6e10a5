"""Masking and pairing measured on a million tokens and more of real text, for every kind, at lengths 128 and 512.

Shards of en-web and zh-web of ../shared/data (Chinese with the segmenter's words), with a list of the commonest
phrases for entity masking. `faithful` must follow the original's count exactly; the others must choose 15% of the
tokens that can be masked, no special token may be chosen, and units must stay whole. 80/10/10 must hold, and be drawn
piece by piece: two neighbouring pieces of a chosen word are then both [MASK] in 64% of cases, where a draw for the
whole word would give 80%. What n-grams, spans and phrases are for must show: runs of chosen tokens that are longer than
those of single words, and phrases chosen whole.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

import harness
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.examples import ExampleOptions, Examples
from bertsmith.data.index import IN_PHRASE, PHRASE_START, WORD_START
from bertsmith.data.masking import Masking, MaskKind
from bertsmith.data.shards import ShardSet
from bertsmith.jobs.shards import open_tokenizer

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
# The tokenizer, what words are, and what is a phrase: three neighbouring words, or four characters.
SETS = {
    "en-web": ("minilm", "pieces", r"(?=(?<![\w-])([a-z]{3,} [a-z]{3,} [a-z]{3,})(?![\w-]))"),
    "zh-web": ("m3e-small", "chinese", r"(?=([\u4e00-\u9fa5]{4}))"),
}
NUM_PHRASES = 500
NUM_TOKENS = 1_000_000
LONGER = 1.2  # times the runs of single words
LEAST_INSIDE = 500  # tokens that were chosen inside phrases
BOTH_MASKED, TOLERANCE = 0.64, 0.02  # of neighbours in a word; there are a few thousand
EPOCHS = 3


def open_shards(name: str, folder: Path) -> Examples:
    """Shards of one corpus."""
    model, words, form = SETS[name]
    (folder / f"{name}.txt").write_text("\n".join(common_phrases(name, form)), encoding="utf-8")
    options = ShardOptions(words=words, phrases=folder / f"{name}.txt")  # type: ignore[arg-type]
    tokenizer = open_tokenizer(model)
    build_shards([str(CORPORA / f"{name}.jsonl")], tokenizer, folder / name, options=options, workers=2)
    return Examples(ShardSet(folder / name), tokenizer, ExampleOptions())


def common_phrases(name: str, form: str) -> list[str]:
    """What occurs most often in a corpus; of characters, what the segmenter takes for a phrase or not."""
    counts: Counter[str] = Counter()
    with (CORPORA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            counts.update(re.findall(form, json.loads(line)["text"].lower()))
    return [phrase for phrase, _ in counts.most_common(NUM_PHRASES)]


def measure(examples: Examples, kind: MaskKind, length: int, *, faithful: bool) -> dict[str, float]:
    """Counts over enough examples."""
    masking = Masking(kind, faithful=faithful, max_predictions=(20 if length == 128 else 77) if faithful else None)
    options = replace(examples.options, max_length=length, masking=masking, pairs="balanced")
    examples = Examples(examples.shards, examples.tokenizer, options)
    plan = examples.plan(0)
    enough = int(np.searchsorted(np.cumsum(plan.lengths), NUM_TOKENS)) + 1
    rows = np.arange(min(enough, len(plan)))
    part = plan.take(rows)
    batch = examples.batch(0, rows)
    tokens, units, segments = examples.assemble(part)
    chosen = np.zeros(len(tokens), bool)
    chosen[batch.positions] = True
    seen = batch.input_ids[batch.positions]
    inside = (segments >= 0) & ((units & WORD_START) == 0)
    if kind == "entity":
        inside = (inside | ((units & IN_PHRASE) > 0)) & ((units & PHRASE_START) == 0)  # one may begin inside a word
    inside[1:] &= segments[1:] == segments[:-1]
    inside[0] = False
    places = np.flatnonzero(inside)
    example = np.repeat(np.arange(len(rows)), part.lengths)
    counts = np.bincount(example[batch.positions], minlength=len(rows))
    begins = chosen & (segments >= 0) & np.r_[True, ~chosen[:-1] | (example[1:] != example[:-1])]
    phrases = ((units & IN_PHRASE) > 0) & ((units & WORD_START) > 0)
    hidden, pieces = batch.input_ids == examples.mask_id, np.flatnonzero(inside & ((units & WORD_START) == 0))
    pieces = pieces[chosen[pieces] & chosen[pieces - 1]]
    rule = np.minimum(masking.max_predictions or 0, np.maximum(1, np.rint(0.15 * part.lengths)))
    return {
        "tokens": len(tokens),
        "rate": len(batch.positions) / (segments >= 0).sum(),
        "masked": float((seen == examples.mask_id).mean()),
        "kept": float((seen == batch.labels).mean()),
        "special": int((segments[batch.positions] < 0).sum()),
        "broken": 0 if kind == "piece" else int((chosen[places] != chosen[places - 1]).sum()),
        "off_rule": int((counts != rule).sum()) if faithful else 0,
        "run": chosen.sum() / begins.sum(),
        "phrases": int((chosen & phrases).sum()),
        "both": float((hidden[pieces] & hidden[pieces - 1]).mean()),
        "labels": max(abs(float(examples.plan(epoch).labels.mean()) - 0.5) for epoch in range(EPOCHS)) + 0.5,
    }


def main() -> int:
    """Measure, print."""
    options = harness.parser(__doc__ or "").parse_args()
    rows, verdicts, shares = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in SETS:
            examples = open_shards(name, Path(folder))
            cases = [(kind, False) for kind in get_args(MaskKind)] + [("piece", True)]
            for length in (128, 512):
                of_words = 0.0
                original = replace(examples.options, max_length=length, pairs="faithful")
                labels = Examples(examples.shards, examples.tokenizer, original).plan(0).labels
                shares.append(f"{labels.mean():.1%} in {name} at {length} ({len(labels):,} pairs)")
                for kind, faithful in cases:
                    found = measure(examples, kind, length, faithful=faithful)
                    title = f"{name}, {length}, {'faithful ' if faithful else ''}{kind}"
                    rate_holds = found["off_rule"] == 0 if faithful else abs(found["rate"] - 0.15) <= 0.001
                    holds = (
                        rate_holds
                        and abs(found["masked"] - 0.8) <= 0.007
                        and abs(found["kept"] - 0.1) <= 0.007
                        and abs(1 - found["masked"] - found["kept"] - 0.1) <= 0.007
                        and (kind == "piece" or abs(found["both"] - BOTH_MASKED) <= TOLERANCE)
                        and not found["special"]
                        and not found["broken"]
                        and found["labels"] == 0.5
                    )
                    of_words = found["run"] if kind == "word" else of_words
                    if kind in ("ngram", "span"):
                        holds = holds and found["run"] >= LONGER * of_words > 0
                    if kind == "entity":
                        holds = holds and found["phrases"] >= LEAST_INSIDE
                    verdicts.append(holds)
                    rows.append(
                        f"| {title} | {found['tokens']:,} | {found['rate']:.3%} | {found['masked']:.2%} | "
                        f"{1 - found['masked'] - found['kept']:.2%} | {found['kept']:.2%} | "
                        f"{'–' if kind == 'piece' else format(found['both'], '.1%')} | {found['special']} | "
                        f"{found['broken']} | {found['run']:.2f} | {found['phrases'] if kind == 'entity' else '–'} | "
                        f"{found['off_rule'] if faithful else '–'} | {found['labels']:.1%} | "
                        f"{'yes' if holds else '**no**'} |"
                    )
    harness.show(
        "masks",
        "Masks and pairs",
        [
            (__doc__ or "").strip(),
            "",
            harness.no_products(),
            "",
            "Targets: rate 15% ± 0.1 points (or the rule, exactly), 80/10/10 ± 0.7 points, both pieces [MASK] "
            f"{BOTH_MASKED:.0%} ± {100 * TOLERANCE:g} points, none special, none broken, half of the pairs random in "
            f"each of {EPOCHS} epochs, runs of n-grams and spans at least {LONGER} times as long as those of words, at "
            f"least {LEAST_INSIDE} tokens chosen inside phrases.",
            "",
            f"Pairs as the original makes them (`--pairs faithful`), random ones: {', '.join(shares)}.",
            "",
            "| corpus, length, kind | tokens | chosen | [MASK] | random | kept | both [MASK] | special | broken units "
            "| run | inside phrases | off the rule | random pairs | met |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
