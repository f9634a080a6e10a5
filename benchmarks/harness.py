"""What every benchmark shares: versions, the machine's own peak, turn-and-turn-about timing, a kept page."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import platform
import random
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bertsmith.train.loop import Work
    from bertsmith.train.speed import Peak

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


def parser(description: str) -> argparse.ArgumentParser:
    """An argument parser with what all benchmarks take."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--keep", action="store_true", help="write the page to docs/results/")
    return made


def versions(*packages: str) -> str:
    """One line: Python, the processor's kind, and the packages that took part."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "tokenizers", *packages)]
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return f"Python {platform.python_version()}, {platform.machine()} {capability}, " + ", ".join(found)


def measure_peak(repeats: int = 15) -> Peak:
    """Best of the three named shapes, each by its median."""
    from bertsmith.train import speed  # not at the top: worker processes import the benchmark that started them

    return speed.measure_peak(repeats)


def take_turns(
    contenders: Mapping[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, list[float]], list[Peak]]:
    """Seconds of each contender in each round, all in one process, turn and turn about; run each once before.

    The machine's peak is measured in every round too: on a shared machine it changes from minute to minute.
    """
    peaks = []
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        peaks.append(measure_peak(repeats=5))
        for name, run in contenders.items():
            seconds[name].append(_seconds(run))
        sys.stderr.write(f"round {number + 1} of {rounds}\n")
    return seconds, peaks


def peak_shares(operations: float, seconds: Sequence[float], peaks: Sequence[Peak]) -> list[float]:
    """Shares of the peak, round by round against the peak of the same round."""
    return [operations / time / peak.flops for time, peak in zip(seconds, peaks, strict=True)]


def peak_share(operations: float, seconds: Sequence[float], peaks: Sequence[Peak]) -> float:
    """The median of those."""
    return statistics.median(peak_shares(operations, seconds, peaks))


def describe_peaks(peaks: Sequence[Peak]) -> str:
    """The median of the rounds' peaks and their range."""
    rates = [peak.flops / 1e9 for peak in peaks]
    return f"{statistics.median(rates):.0f} GFLOP/s ({min(rates):.0f}–{max(rates):.0f}), the best of {peak_shapes()}"


def peak_shapes() -> str:
    """The products that the peak is measured by."""
    from bertsmith.train.speed import PEAK_SHAPES

    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in PEAK_SHAPES.items())


def no_products(peaks: Sequence[Peak] | None = None) -> str:
    """The line on peak and operations for a job without matrix products."""
    measured = describe_peaks(peaks or [measure_peak()])
    return f"Peak of this machine in float32: {measured}. Matrix products that this job needs: none."


def describe_step(work: Work) -> str:
    """The operations of a pre-training step, in a sentence."""
    counts = work.step(0, {}).counts
    return (
        f"The first step needs {counts['operations'] / 1e9:.1f} GFLOP of matrix products for {counts['tokens']:,} "
        "tokens, forward and backward; those of the optimizer are not counted."
    )


def resident() -> dict[str, float]:
    """What the system says this process holds, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Vm")}


def spread(seconds: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"


def ratio_interval(ours: Sequence[float], peer: Sequence[float]) -> tuple[float, float, float]:
    """Peer's time over ours: the ratio of medians, and its 95% bootstrap interval over rounds."""
    rng = random.Random(0)
    pairs = list(zip(ours, peer, strict=True))
    draws = []
    for _ in range(2000):
        sample = rng.choices(pairs, k=len(pairs))
        draws.append(statistics.median(p for _, p in sample) / statistics.median(o for o, _ in sample))
    draws.sort()
    return statistics.median(peer) / statistics.median(ours), draws[50], draws[1949]


def interval(ratio: tuple[float, float, float]) -> str:
    """A ratio and its interval as people read it."""
    return f"{ratio[0]:.2f}× ({ratio[1]:.2f}–{ratio[2]:.2f})"


def verdict_table(
    verdicts: Sequence[tuple[str, str, str, bool]], measured: str = "measured (95% interval)"
) -> list[str]:
    """Target against measurement, one row each; a miss is said as loudly as a hit."""
    head = [f"| what | target | {measured} | met |", "|---|---|---|---|"]
    return head + [
        f"| {what} | {target} | {got} | {'yes' if met else '**no**'} |" for what, target, got, met in verdicts
    ]


def show(name: str, title: str, lines: Sequence[str], *, keep: bool) -> None:
    """Print a Markdown page; with `keep`, also write it to docs/results/NAME.md with date and command."""
    command = f"make results NAME={Path(sys.argv[0]).stem}"
    arguments = [argument for argument in sys.argv[1:] if argument != "--keep"]
    if arguments:
        command += f" ARGS={shlex.quote(' '.join(arguments))}"
    head = [f"# {title}", "", f"{datetime.date.today().isoformat()} · `{command}`", ""]
    text = "\n".join([*head, *lines]) + "\n"
    print(text)
    if keep:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
