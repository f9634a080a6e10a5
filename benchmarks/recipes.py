"""What the `modern` recipe is made of: each choice against the recipe without it, at equal wall-clock, two seeds.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens. Every run gets the same
minutes; the number of its steps follows from its own measured speed, and its learning rate ends at zero there. The
figure is the loss of masked words on the fixed held-out set of `benchmarks/held_out.py`; lower is better.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import torch

import harness
from held_out import kept, train_ours

SEEDS = (0, 1)
# The recipe as it stands, and one change at a time.
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
    "pieces masked, not words": {"masking.kind": "piece"},
}


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--minutes", type=float, default=2.0)
    arguments.add_argument("--only", default="", help="candidates whose name contains this")
    options = arguments.parse_args()
    torch.set_num_threads(2)
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, changes in CANDIDATES.items():
            if options.only in name:
                settings = {"phases": "128:1", "seed": seed, **changes}
                key = f"recipe-{options.minutes:g}-{name.replace(' ', '-')}-{seed}"
                print(key, flush=True)
                found.setdefault(name, []).append(
                    kept(key, lambda settings=settings: train_ours("modern", options.minutes, settings))  # type: ignore[misc]
                )
    base = [run["curve"][-1][2] for run in found.get("modern", [])]
    rows = []
    for name, runs in found.items():
        losses = [run["curve"][-1][2] for run in runs]
        steps = "/".join(str(run["total"]) for run in runs)
        gain = [loss - other for loss, other in zip(losses, base, strict=False)]
        verdict = "–" if name == "modern" else _verdict(gain)
        cells = (name, steps, f"{statistics.mean(run['tokens'] for run in runs) / 1e6:.1f}",
                 " / ".join(f"{loss:.3f}" for loss in losses),
                 " / ".join(f"{value:+.3f}" for value in gain), verdict)  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    harness.show(
        "recipes",
        "What was tried for the modern recipe",
        [
            (__doc__ or "").strip(),
            "",
            f"{options.minutes:g} minutes a run. {harness.describe_peaks([harness.measure_peak()])}; operations: see "
            "[pretrain-step](pretrain-step.md).",
            "",
            "| variant | steps | million tokens | held-out loss, two seeds | against the recipe | |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0


def _verdict(gain: list[float]) -> str:
    if all(value < 0 for value in gain):
        return "better with both seeds"
    return "worse with both seeds" if all(value > 0 for value in gain) else "no clear difference"


if __name__ == "__main__":
    sys.exit(main())
