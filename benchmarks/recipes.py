"""What the `modern` recipe is made of: each choice against the recipe without it, at equal wall-clock, two seeds.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens. Every run gets the same
minutes: the seconds a step of all variants are measured first, in turn on a quiet machine, and give the number of steps
of each; its learning rate ends at zero there. The figure is the loss of masked words on the fixed held-out set of
`benchmarks/held_out.py`; lower is better. Both seeds must agree for a verdict.

The base is the recipe as it was before this table, with a cosine (`one_cycle`). Of what came out better, linear decay
went into `modern`; shorter examples first did not, because lengths are the user's (`--phases`), 128 and then 512 if
nothing is said. What differs by less than about 0.01 differs no more than the seeds do. Not tried: token dropping in
the middle layers and progressive stacking. Updating only the embedding rows that occur has nothing to gain here: the
output layer is tied to them and gives every row a gradient.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

import harness
from held_out import Pace, kept, train_ours

SEEDS = (0, 1)
BASE = {"phases": "128:1", "schedule.kind": "one_cycle"}
# The base, and one change at a time.
CANDIDATES: dict[str, dict[str, Any]] = {
    "modern": {},
    "AdamW for all weights, not Muon for the hidden ones": {"optimizer.kind": "adamw"},
    "peak rate 5e-3": {"optimizer.rate": 5e-3},
    "dropout 0.1": {"dropout": 0.1},
    "batch of 1,024 tokens": {"batch.tokens": 1024},
    "batch of 4,096 tokens": {"batch.tokens": 4096},
    "length 64, then 128": {"phases": "64:0.6,128:0.4"},
    "masks from 30% to 15%": {"first_rate": 0.3},
    "no pair task": {"pairs": "none"},
    "linear decay": {"schedule.kind": "linear"},
}


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--minutes", type=float, default=2.0)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="candidates whose name contains this")
    options = arguments.parse_args()
    torch.set_num_threads(2)
    clock = kept("recipes-clock", partial(measure_clock, options.rounds))
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, changes in CANDIDATES.items():
            if options.only in name:
                steps = round(60 * options.minutes / clock["seconds"][name])
                key = f"recipe-{options.minutes:g}-{name.replace(' ', '-')}-{seed}"
                print(key, flush=True)
                run = partial(train_ours, "modern", steps, {**BASE, "seed": seed, **changes})
                found.setdefault(name, []).append(kept(key, run))
    base = [run["curve"][-1][1] for run in found.get("modern", [])]
    rows = []
    for name, runs in found.items():
        losses = [run["curve"][-1][1] for run in runs]
        gain = [loss - other for loss, other in zip(losses, base, strict=False)]
        verdict = "–" if name == "modern" else _verdict(gain)
        shown = "the base" if name == "modern" else name
        cells = (shown, f"{clock['seconds'][name]:.3f}", f"{runs[0]['steps']:,}", f"{runs[0]['tokens'] / 1e6:.2f}",
                 " / ".join(f"{loss:.3f}" for loss in losses),
                 " / ".join(f"{value:+.3f}" for value in gain), verdict)  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    harness.show(
        "recipes",
        "What was tried for the modern recipe",
        [
            (__doc__ or "").strip(),
            "",
            f"{options.minutes:g} minutes a run. Peak while the clock was set: {clock['peaks']}. Operations: see "
            "[pretrain-step](pretrain-step.md).",
            "",
            "| variant | seconds a step | steps | million tokens | held-out loss, two seeds | against the base | |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0


def measure_clock(rounds: int) -> dict[str, Any]:
    """Seconds a step of every variant, in turn."""
    paces = {name: Pace("modern", {**BASE, **changes}) for name, changes in CANDIDATES.items()}
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
