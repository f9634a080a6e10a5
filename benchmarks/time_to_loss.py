"""Time to a loss: `transformers` the `run_mlm` way, our `faithful`, our `modern`; mini, vocabulary 30,522.

`transformers` and `faithful` train for 20 minutes with batches of 32 × 128 tokens and a rate that ends at zero there,
`transformers` with the best of three peak rates. `modern` then has to reach their losses in 7 and 12 minutes. All are
judged on one fixed held-out set (`benchmarks/held_out.py`): full-length text, as `run_mlm` trains on it.

How the time is told: each side's seconds a step are measured first, on a quiet machine, sides in turn. The rivals' 20
minutes are counted by the fastest step that they showed, ours by the median of ours. The runs themselves may then share
the machine with other work, or be spread over several sittings: what they learn depends on their steps alone.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
import transformers

import harness
import run_mlm
from bertsmith.data.shards import ShardSet
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.model.memory import keep_freed_memory
from held_out import SIZE, Pace, data_folder, dates_of, held_out_loss, kept, settings_of, step_operations, train_ours

MINUTES = 20
PEAK_RATES = (5e-4, 1e-3, 2e-3)
FAITHFUL = {"batch.tokens": 32 * 128, "schedule.warmup": 0.01, "phases": "128:1"}
MODERN = {"phases": "128:1"}
TARGETS = {"transformers": 7.0, "faithful": 12.0}
SEEDS = (0, 1)


def measure_clock(rounds: int) -> dict[str, Any]:
    """Seconds a step of each side on two threads, in turn, and the peak."""
    torch.set_num_threads(2)
    folder = data_folder()
    tokenizer, shards = open_tokenizer(str(folder)), ShardSet(folder)
    peers = {f"transformers, {name}": run_mlm.MaskedLMRun(SIZE, shards, tokenizer, attention=name).step
             for name in ("eager", "sdpa")}  # fmt: skip

    paces = {"faithful": Pace("faithful", FAITHFUL), "modern": Pace("modern", MODERN)}
    ours = {name: pace.sample for name, pace in paces.items()}
    for run in (*peers.values(), *ours.values()):
        run()
    seconds, peaks = harness.take_turns({**peers, **ours}, rounds)
    clock = {name: min(seconds[name]) for name in peers}
    clock |= {"faithful": min(paces["faithful"].samples[0]), "modern": paces["modern"].seconds()}
    return {"clock": clock, "peaks": harness.describe_peaks(peaks)}


def run_peer(peak: float, steps: int) -> dict[str, Any]:
    """`transformers` to its end."""
    folder = data_folder()
    run = run_mlm.MaskedLMRun(SIZE, ShardSet(folder), open_tokenizer(str(folder)), peak=peak, steps=steps)
    curve = []
    for step in range(1, steps + 1):
        run.step()
        if step % max(1, steps // 5) == 0 or step == steps:
            curve.append([step, held_out_loss(run.as_ours())])  # type: ignore[arg-type]
            print(f"peak rate {peak:g}, step {step} of {steps}: {curve[-1][1]:.4f}", flush=True)
    return {"steps": steps, "curve": curve}


def reached(curve: list[list[float]], loss: float, seconds: float) -> float | None:
    """Minutes until a curve is at or below a loss."""
    return next((step * seconds / 60 for step, value in curve if value <= loss), None)


def main() -> int:
    """Run what is not there yet, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--only", choices=["clock", "peer", "faithful", "modern"], help="one part, for a sitting")
    options = arguments.parse_args()
    keep_freed_memory()
    sides = [settings_of("faithful", FAITHFUL), settings_of("modern", MODERN)]
    measured = kept("clock", lambda: measure_clock(options.rounds), sides)
    clock = measured["clock"]
    peer = min((name for name in clock if name.startswith("transformers")), key=lambda name: clock[name])
    peer_steps = round(60 * MINUTES / clock[peer])
    results: dict[str, Any] = {}
    if options.only in (None, "peer"):
        for rate in PEAK_RATES:
            results[f"transformers, peak rate {rate:g}"] = kept(
                f"peer-{rate:g}", partial(run_peer, rate, peer_steps), [peer_steps, transformers.__version__]
            )
    if options.only in (None, "faithful"):
        steps = round(60 * MINUTES / clock["faithful"])
        run = partial(train_ours, "faithful", steps, FAITHFUL, 10)
        results["faithful"] = kept("faithful", run, [steps, settings_of("faithful", FAITHFUL)])
    if options.only in (None, "modern"):
        steps = round(60 * TARGETS["transformers"] / clock["modern"])
        for seed in SEEDS:
            changes = {**MODERN, "seed": seed}
            run = partial(train_ours, "modern", steps, changes, 28)
            results[f"modern, seed {seed}"] = kept(f"modern-{seed}", run, [steps, settings_of("modern", changes)])
    if options.only:
        return 0
    return report(options, measured, peer, results)


def report(options: Any, measured: dict[str, Any], peer: str, results: dict[str, Any]) -> int:
    """The page; gives 1 where a target is missed."""
    clock = measured["clock"]
    seconds = {name: clock[peer if name.startswith("transformers") else name.split(",")[0]] for name in results}
    rows = []
    for name, run in results.items():
        minutes, loss = run["steps"] * seconds[name] / 60, run["curve"][-1][1]
        rows.append(f"| {name} | {run['steps']:,} | {seconds[name]:.3f} | {minutes:.1f} | {loss:.4f} |")
    best = min(
        (name for name in results if name.startswith("transformers")), key=lambda name: results[name]["curve"][-1][1]
    )
    verdicts = []
    for rival, name in (("transformers", best), ("faithful", "faithful")):
        loss = results[name]["curve"][-1][1]
        times = [reached(results[f"modern, seed {seed}"]["curve"], loss, clock["modern"]) for seed in SEEDS]
        shown = " and ".join("not reached" if value is None else f"{value:.1f} minutes" for value in times)
        met = all(value is not None and value <= TARGETS[rival] for value in times)
        verdicts.append(
            (f"`modern` reaches the {loss:.4f} of {name}", f"at most {TARGETS[rival]:g} minutes", shown, met)
        )
    harness.show(
        "time-to-loss",
        "Time to a loss",
        [
            (__doc__ or "").strip(),
            "",
            f"{dates_of([measured, *results.values()])} Peak of this machine while the clock was set: "
            f"{measured['peaks']}. {step_operations('modern', MODERN)}",
            "",
            "| run | steps | seconds a step | minutes | held-out loss at the end |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("transformers"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
