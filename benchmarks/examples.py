"""Pre-training examples made per second, on one core: planning an epoch, putting examples together, masking them.

Shards of en-web of ../shared/data, batches of 4,096 tokens at length 128, balanced pairs. The plan of the epoch is part
of the time. There is no peer: `transformers` makes its examples in the data collator, one at a time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import harness
from bertsmith.data.building import build_shards
from bertsmith.data.examples import ExampleOptions, Examples, cut_by_tokens
from bertsmith.data.masking import Masking, MaskKind
from bertsmith.data.shards import ShardSet
from bertsmith.jobs.shards import open_tokenizer

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus" / "en-web.jsonl"
TARGETS: dict[MaskKind, float | None] = {"piece": 1.5e6, "word": 1.5e6, "ngram": None, "span": None, "entity": None}
BATCH = 4096


def main() -> int:
    """Measure, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    tokenizer = open_tokenizer("minilm")
    rates: dict[MaskKind, list[float]] = {kind: [] for kind in TARGETS}
    with tempfile.TemporaryDirectory() as folder:
        build_shards([str(CORPUS)], tokenizer, Path(folder) / "data", workers=2)
        for epoch in range(options.rounds):
            for kind in TARGETS:
                examples = Examples(ShardSet(Path(folder) / "data"), tokenizer, ExampleOptions(masking=Masking(kind)))
                begun = time.perf_counter()
                plan = examples.plan(epoch)
                cuts = cut_by_tokens(plan.lengths, BATCH)
                made = 0
                for start, stop in pairwise(cuts.tolist()):
                    made += len(examples.batch(epoch, np.arange(start, stop)).input_ids)
                rates[kind].append(made / (time.perf_counter() - begun))
    verdicts = [
        (
            kind,
            "–" if target is None else f"at least {target / 1e6} million",
            f"{np.median(rates[kind]) / 1e6:.2f} million ({min(rates[kind]) / 1e6:.2f}–{max(rates[kind]) / 1e6:.2f})",
            target is None or float(np.median(rates[kind])) >= target,
        )
        for kind, target in TARGETS.items()
    ]
    harness.show(
        "examples",
        "Examples per second",
        [
            (__doc__ or "").strip(),
            "",
            f"Tokens a second, median of {options.rounds} epochs (range). {harness.no_products()}",
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
