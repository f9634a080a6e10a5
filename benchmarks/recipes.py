"""What the `modern` recipe is made of: each choice against the recipe without it, at equal wall-clock, two seeds.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens. Every run gets the same
minutes: the seconds a step of all variants are measured first, in turn on a quiet machine, and give the number of steps
of each; its learning rate ends at zero there. The figure is the loss of masked words on the fixed held-out set of
`benchmarks/held_out.py`; lower is better. Both seeds must agree for a verdict.

The base is the recipe as it was before this table: random first weights, a cosine (`one_cycle`). Of what came out
better, heads that begin at the neighbours and linear decay went into `modern`; shorter examples first did not, because
lengths are the user's (`--phases`), 128 and then 512 if nothing is said. What differs by less than about 0.01 differs
no more than the seeds do. All rows but that of the neighbours were tried from random weights, where no run used word
order yet; beyond that they are to be tried again. Not tried: token dropping in the middle layers and progressive
stacking. Updating only the embedding rows that occur has nothing to gain here: the output layer is tied to them and
gives every row a gradient.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

import harness
from held_out import Pace, kept, train_ours

SEEDS = (0, 1)
# One change at a time; "the base" is none.
CANDIDATES: dict[str, dict[str, Any]] = {
    "modern": {},
    "AdamW for all weights, not Muon for the hidden ones": {"optimizer.kind": "adamw"},
    "peak rate 5e-3": {"optimizer.rate": 5e-3},
    "peak rate 1e-3": {"optimizer.rate": 1e-3},
    "dropout 0.1": {"dropout": 0.1},
    "batch of 1,024 tokens": {"batch.tokens": 1024},
    "batch of 4,096 tokens": {"batch.tokens": 4096},
    "length 64, then 128": {"phases": "64:0.6,128:0.4"},
    "masks from 30% to 15%": {"first_rate": 0.3},
    "pieces masked, not words": {"masking.kind": "piece"},
    "no pair task": {"pairs": "none"},
    "linear decay": {"schedule.kind": "linear"},
    "heads that begin at the neighbours": {"initial": "neighbours"},
}
# What takes its steps at the pace of the base.
SAME_PACE = ("peak rate 1e-3", "pieces masked, not words", "heads that begin at the neighbours")
# By the weights that the base begins with: minutes a run, the base, and what has no place in that table.
TABLES: dict[str, tuple[float, dict[str, Any], tuple[str, ...]]] = {
    "random": (2, {"initial": "random", "schedule.kind": "one_cycle"}, ("peak rate 1e-3", "pieces masked, not words")),
    "neighbours": (4, {}, ("linear decay", "heads that begin at the neighbours", "length 64, then 128")),
}


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="candidates whose name contains this")
    arguments.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    options = arguments.parse_args()
    clock = kept("recipes-clock", partial(measure_clock, options.rounds))
    seconds = {**clock["seconds"], **dict.fromkeys(SAME_PACE, clock["seconds"]["modern"])}
    lines = []
    for table in options.tables:
        found = run_table(table, options.only, seconds)
        lines += ["", f"## From {table} weights, {TABLES[table][0]:g} minutes a run", "", *table_lines(found, seconds)]
    harness.show(
        "recipes",
        "What was tried for the modern recipe",
        [
            (__doc__ or "").strip(),
            "",
            f"Peak while the clock was set: {clock['peaks']}. Operations: see [pretrain-step](pretrain-step.md).",
            *lines,
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0


def run_table(table: str, only: str, seconds: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each candidate, seed by seed."""
    minutes, base, without = TABLES[table]
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, changes in CANDIDATES.items():
            if only in name and name not in without:
                mark = "" if table == "random" else f"{table}-"
                key = f"recipe-{mark}{minutes:g}-{name.replace(' ', '-')}-{seed}"
                print(key, flush=True)
                steps = round(60 * minutes / seconds[name])
                run = partial(train_ours, "modern", steps, {"phases": "128:1", **base, "seed": seed, **changes})
                found.setdefault(name, []).append(kept(key, run))
    return found


def table_lines(found: dict[str, list[dict[str, Any]]], seconds: dict[str, float]) -> list[str]:
    """A row for each candidate, beside the base."""
    base = [run["curve"][-1][1] for run in found.get("modern", [])]
    rows = []
    for name, runs in found.items():
        losses = [run["curve"][-1][1] for run in runs]
        gain = [loss - other for loss, other in zip(losses, base, strict=False)]
        verdict = "–" if name == "modern" else _verdict(gain)
        shown = "the base" if name == "modern" else name
        cells = (shown, f"{seconds[name]:.3f}", f"{runs[0]['steps']:,}", f"{runs[0]['tokens'] / 1e6:.2f}",
                 " / ".join(f"{loss:.3f}" for loss in losses),
                 " / ".join(f"{value:+.3f}" for value in gain), verdict)  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return [
        "| variant | seconds a step | steps | million tokens | held-out loss, two seeds | against the base | |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


def measure_clock(rounds: int) -> dict[str, Any]:
    """Seconds a step of every variant, in turn."""
    torch.set_num_threads(2)
    timed = [name for name in CANDIDATES if name not in SAME_PACE]
    paces = {name: Pace("modern", {"phases": "128:1", **CANDIDATES[name]}) for name in timed}
    peaks = []
    for number in range(rounds + 1):
        peaks.append(harness.measure_peak(repeats=5))
        for pace in paces.values():
            pace.sample()
        print(f"clock, round {number} of {rounds}", flush=True)
    return {"seconds": {name: pace.seconds() for name, pace in paces.items()}, "peaks": harness.describe_peaks(peaks)}


def _verdict(gain: list[float]) -> str:
    if all(value < 0 for value in gain):
        return "better with both seeds"
    return "worse with both seeds" if all(value > 0 for value in gain) else "no clear difference"


if __name__ == "__main__":
    sys.exit(main())
