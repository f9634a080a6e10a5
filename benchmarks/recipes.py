"""What the `modern` recipe is made of: each choice against the recipe without it, at equal wall-clock, two seeds.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens. Every run gets the same
minutes: the seconds a step of all variants are measured first, in turn on a quiet machine, and give the number of steps
of each; its learning rate ends at zero there. The figure is the loss of masked words on the fixed held-out set of
`benchmarks/held_out.py`; lower is better. Both seeds must agree for a verdict, and by more than seeds differ.

`--table first`: the base is the recipe as it was before: random first weights, a cosine (`one_cycle`). Of what
came out better, heads that begin at the neighbours and linear decay went into `modern`; shorter examples first did not,
because lengths are the user's (`--phases`), 128 and then 512 if nothing is said; and the pair task stays unless it is
told to go (`--pairs none`). Below it, positions: examples of 128 tokens for three quarters of the steps, then of 512;
the loss is that of held-out text of up to 512 tokens.

`--table now`: the base is `modern` as the first table made it; what that does not try is tried from there. Both are
from before rare words were kept apart (docs/pretraining.md).

Not tried: token dropping in the middle layers, progressive stacking. Updating only the embedding rows that occur has
nothing to gain here: the output layer is tied to them and gives every row a gradient.
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
BEFORE = {"word_bias": "zero", "optimizer.eps": 1e-6}  # rare words were kept apart
BASE = {"initial": "random", "schedule.kind": "one_cycle", **BEFORE}
# From the recipe that this gave; all of these take their steps at its own pace.
NOW: dict[str, dict[str, Any]] = {
    "modern": {},
    "peak rate 1e-3": {"optimizer.rate": 1e-3},
    "warm-up of 2%, not 10%": {"schedule.warmup": 0.02},
    "second moments over 0.999, not 0.98": {"optimizer.betas": [0.9, 0.999]},
}
CLEAR = 0.01  # losses that differ by less differ no more than seeds do
MINUTES = 2
LONG_STEPS, LONG_PHASES = 240, "128:0.75,512:0.25"


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--table", choices=["first", "now"], default="first")
    options = arguments.parse_args()
    clock = kept("recipes-clock", partial(measure_clock, options.rounds), timed_settings())
    seconds = dict(clock["seconds"])
    if options.table == "now":
        seconds = dict.fromkeys(NOW, seconds["modern"])
        runs = run_candidates("now", {name: {**BEFORE, **changes} for name, changes in NOW.items()}, seconds)
        lines = [f"## From that recipe, {MINUTES} minutes a run", "", *table_lines(runs, seconds)]
    else:
        seconds |= {name: sum(share * seconds[of] for of, share in shares.items()) for name, shares in PACES.items()}
        variants = {name: {**BASE, **changes} for name, changes in CANDIDATES.items()}
        runs = run_candidates("recipe", variants, seconds)
        lines = [f"## From random weights, {MINUTES} minutes a run", "", *table_lines(runs, seconds)]
        runs |= (longer := run_positions())
        lines += ["", "## Positions that no example has had yet", "", f"{LONG_STEPS} steps, `{LONG_PHASES}`.", "",
                  *position_lines(longer)]  # fmt: skip
    days = dates_of([clock, *(run for each in runs.values() for run in each)])
    operations = step_operations("modern", {"phases": "128:1"})
    harness.show(
        "recipes" if options.table == "first" else "recipes-now",
        "What was tried for the modern recipe" + ("" if options.table == "first" else ", from what this gave"),
        [(__doc__ or "").strip(), "", f"{days} Peak while the clock was set: {clock['peaks']}. {operations}", "",
         *lines, "", harness.versions()],
        keep=options.keep,
    )  # fmt: skip
    return 0


def run_candidates(
    table: str, variants: dict[str, dict[str, Any]], seconds: dict[str, float]
) -> dict[str, list[dict[str, Any]]]:
    """The runs of each candidate, seed by seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:
        for name, changes in variants.items():
            key = f"{table}-{MINUTES}-{name.replace(' ', '-')}-{seed}"
            print(key, flush=True)
            steps = round(60 * MINUTES / seconds[name])
            asked = {"phases": "128:1", "seed": seed, **changes}
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


def timed_changes() -> dict[str, dict[str, Any]]:
    """What has a pace of its own."""
    return {name: {"phases": "128:1", **BEFORE, **changes} for name, changes in CANDIDATES.items() if name not in PACES}


def timed_settings() -> list[dict[str, Any]]:
    """What the clock was set with."""
    return [settings_of("modern", changes) for changes in timed_changes().values()]


def measure_clock(rounds: int) -> dict[str, Any]:
    """Seconds a step of every variant, in turn."""
    torch.set_num_threads(2)
    paces = {name: Pace("modern", changes) for name, changes in timed_changes().items()}
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
    if all(value < -CLEAR for value in gain):
        return "better with both seeds"
    return "worse with both seeds" if all(value > CLEAR for value in gain) else "no clear difference"


if __name__ == "__main__":
    sys.exit(main())
