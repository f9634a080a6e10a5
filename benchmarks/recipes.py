"""What the `modern` recipe is made of: each choice against the recipe without it, at equal wall-clock, two seeds.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens. Every run gets the same
minutes: the seconds a step of all variants are measured first, in turn on a quiet machine, and give the number of steps
of each; its learning rate ends at zero there. The figure is the loss of masked words on the fixed held-out set of
`benchmarks/held_out.py`; lower is better. Both seeds must agree for a verdict.

The base of the first table is the recipe as it was before it: random first weights, a cosine (`one_cycle`). Of what
came out better, heads that begin at the neighbours and linear decay went into `modern`; shorter examples first did not,
because lengths are the user's (`--phases`), 128 and then 512 if nothing is said; and the pair task stays unless it is
told to go (`--pairs none`). What differs by less than about 0.01 differs no more than the seeds do.

The second table is about positions: examples of 128 tokens for three quarters of the steps, then of 512; the loss
is that of held-out text of up to 512 tokens.

Not tried: token dropping in the middle layers, progressive stacking, other warm-ups than 10% and other second moments
than 0.98. Updating only the embedding rows that occur has nothing to gain here: the output layer is tied to them and
gives every row a gradient.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

import harness
from bertsmith.train.checkpoint import Progress
from held_out import Pace, dates_of, held_out_loss, kept, prepare, settings_of, step_operations, train_ours

SEEDS = (0, 1)
# One change at a time; "the base" is none.
CANDIDATES: dict[str, dict[str, Any]] = {
    "modern": {},
    "AdamW for all weights, not Muon for the hidden ones": {"optimizer.kind": "adamw"},
    "peak rate 5e-3": {"optimizer.rate": 5e-3},
    "dropout 0.1": {"dropout": 0.1},
    "batch of 1,024 tokens": {"batch.tokens": 1024},
    "batch of 4,096 tokens": {"batch.tokens": 4096},
    "length 64, then 128": {"phases": "64:0.6,128:0.4"},
    "masks from 30% to 15%": {"first_rate": 0.3},
    "pieces masked, not words": {"masking.kind": "piece"},
    "no pair task": {"pairs": "none"},
    "linear decay": {"schedule.kind": "linear"},
    "batch of 1,024 tokens, then of 2,048": {"phases": "128:0.3:1024,128:0.7"},
    "heads that begin at the neighbours": {"initial": "neighbours"},
}
# What takes its steps at the pace of others, by the share of each.
PACES = {
    "pieces masked, not words": {"modern": 1.0},
    "heads that begin at the neighbours": {"modern": 1.0},
    "batch of 1,024 tokens, then of 2,048": {"batch of 1,024 tokens": 0.3, "modern": 0.7},
}
BASE = {"initial": "random", "schedule.kind": "one_cycle"}
MINUTES = 2
LONG_STEPS, LONG_PHASES = 240, "128:0.75,512:0.25"


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="candidates whose name contains this")
    options = arguments.parse_args()
    clock = kept("recipes-clock", partial(measure_clock, options.rounds))
    seconds = dict(clock["seconds"])
    seconds |= {name: sum(share * seconds[of] for of, share in shares.items()) for name, shares in PACES.items()}
    found = run_candidates(options.only, seconds)
    lines = [f"## From random weights, {MINUTES} minutes a run", "", *table_lines(found, seconds)]
    if not options.only:
        found |= (longer := run_positions())
        lines += [
            "",
            "## Positions that no example has had yet",
            "",
            f"{LONG_STEPS} steps, `{LONG_PHASES}`.",
            "",
            *position_lines(longer),
        ]
    runs = [clock, *(run for each in found.values() for run in each)]
    harness.show(
        "recipes",
        "What was tried for the modern recipe",
        [
            (__doc__ or "").strip(),
            "",
            f"{dates_of(runs)} Peak while the clock was set: {clock['peaks']}. "
            f"{step_operations('modern', {'phases': '128:1'})}",
            "",
            *lines,
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0


def run_candidates(only: str, seconds: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each candidate, seed by seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, changes in CANDIDATES.items():
            if only in name:
                key = f"recipe-{MINUTES}-{name.replace(' ', '-')}-{seed}"
                print(key, flush=True)
                steps = round(60 * MINUTES / seconds[name])
                asked = {"phases": "128:1", **BASE, "seed": seed, **changes}
                run = partial(train_ours, "modern", steps, asked)
                found.setdefault(name, []).append(kept(key, run, [steps, settings_of("modern", asked)]))
    return found


def run_positions() -> dict[str, list[dict[str, Any]]]:
    """`modern` over two lengths, with later positions as they began and as `continued_positions` makes them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name in ("as they began", "going on"):
            changes = {"phases": LONG_PHASES, "seed": seed}
            run = partial(train_long, changes, goes_on=name == "going on")
            key = f"positions-{name.replace(' ', '-')}-{seed}"
            print(key, flush=True)
            found.setdefault(name, []).append(kept(key, run, [LONG_STEPS, settings_of("modern", changes)]))
    return found


def train_long(changes: dict[str, Any], *, goes_on: bool) -> dict[str, Any]:
    """The loss on long text before the first longer example is trained on, and at the end."""
    loop, progress, losses = prepare("modern", LONG_STEPS, changes), Progress(), []
    begin = loop.before_step if goes_on else None
    loop.before_step = None
    work: Any = loop.work
    while progress.step < LONG_STEPS:
        if progress.step == work.settings.phase_ends(LONG_STEPS)[0]:
            if begin is not None:
                begin(loop.model, progress.step, progress.position)
            losses.append(held_out_loss(loop.model, 512))  # type: ignore[arg-type]
        progress, _ = loop.take_step(progress)
    losses += [held_out_loss(loop.model, 512), held_out_loss(loop.model)]  # type: ignore[arg-type]
    print(losses, flush=True)
    return {"losses": losses}


def position_lines(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A row for each way."""
    rows = []
    for name, runs in found.items():
        columns = [" / ".join(f"{run['losses'][place]:.3f}" for run in runs) for place in range(3)]
        rows.append(f"| {name} | {' | '.join(columns)} |")
    ends = [[run["losses"][1] for run in runs] for runs in found.values()]
    return [
        "| later positions | up to 512 tokens, before the first of them | at the end | up to 128 tokens, at the end |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Going on is {_verdict([after - before for before, after in zip(*ends, strict=True)])}.",
    ]


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
    timed = [name for name in CANDIDATES if name not in PACES]
    paces = {name: Pace("modern", {"phases": "128:1", **CANDIDATES[name]}) for name in timed}
    peaks = []
    for number in range(rounds + 1):
        peaks.append(harness.measure_peak(repeats=5))
        for pace in paces.values():
            pace.sample()
        print(f"clock, round {number} of {rounds}", flush=True)
    return {"seconds": {name: pace.seconds() for name, pace in paces.items()}, "peaks": harness.describe_peaks(peaks)}


def _verdict(gain: list[float]) -> str:
    if not gain:
        return "–"
    if all(value < 0 for value in gain):
        return "better with both seeds"
    return "worse with both seeds" if all(value > 0 for value in gain) else "no clear difference"


if __name__ == "__main__":
    sys.exit(main())
