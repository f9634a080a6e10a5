"""Two processes against one, on one machine: the same losses, and the throughput.

mini with a vocabulary of 8,192 on en-web, 100 steps of 4,096 tokens, no dropout: one process with two threads, two
processes (DDP over gloo) with one thread each, two processes with FSDP2, and runs that change from one to the other at
step 50. Losses are compared step by step. Throughput is measured in turns of one process and two.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from bertsmith.data.building import build_shards
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.request import read_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.train.distributed import World
from bertsmith.train.metrics import read_log

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus" / "en-web.jsonl"
STEPS = 100
WARM_UP = 5
TOLERANCE = 1e-4


def train(data: Path, run: Path, processes: int, *, spread: str = "ddp", stop_at: int | None = None) -> None:
    """Begin a run, or go on with one; `stop_at` leaves the last checkpoint at that step."""
    settings = ["dropout=0", "phases=128:1", "batch.tokens=4096", "checkpoint.every=50", "checkpoint.keep=9"]
    launch = [sys.executable, "-m"]
    if processes > 1:
        launch += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [
        *launch,
        "bertsmith",
        "pretrain",
        "--shards",
        str(data),
        "--size",
        "mini",
        "--output",
        str(run),
        "--resume",
    ]
    command += ["--steps", str(STEPS)] + [part for setting in settings for part in ("--set", setting)]
    command += ["--set", f"spread={spread}"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(2 // processes)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    if stop_at is not None:
        go_back(run, stop_at)


def go_back(run: Path, step: int) -> None:
    """Forget what came after a checkpoint."""
    for path in (run / "checkpoints").iterdir():
        if int(path.name.split("-")[1]) > step:
            shutil.rmtree(path)
    shutil.rmtree(run / "model")


def entries(run: Path) -> list[dict[str, float]]:
    """The training steps of a run."""
    return [entry for entry in read_log(run / "metrics.jsonl") if entry["kind"] == "train"]


def largest_difference(run: Path, other: Path) -> float:
    """Of the losses, step by step, relative."""
    pairs = zip(entries(run), entries(other), strict=True)
    return max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in pairs)


def speed(run: Path) -> float:
    """Tokens a second, the median step."""
    return statistics.median(entry["tokens_per_second"] for entry in entries(run)[WARM_UP:])


def main() -> int:
    """Run, compare, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    peaks = [harness.measure_peak()]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        vocab([str(CORPUS)], output=scratch / "vocab", options=VocabOptions(size=8192))
        data = scratch / "data"
        build_shards([str(CORPUS)], open_tokenizer(str(scratch / "vocab")), data, workers=2)
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for number in range(options.rounds):
            for processes in (1, 2):
                run = scratch / f"{processes}-{number}"
                train(data, run, processes)
                speeds[processes].append(speed(run))
                print(processes, speeds[processes][-1], file=sys.stderr, flush=True)
            peaks.append(harness.measure_peak())
        one, two = scratch / "1-0", scratch / "2-0"
        begun = PretrainingRun(read_request(one), one, World(), Observer())
        operations = harness.describe_step(begun.make_loop(STEPS).work)
        train(data, scratch / "fsdp", 2, spread="fsdp")
        differences = {"two processes, DDP": largest_difference(two, one),
                       "two processes, FSDP2": largest_difference(scratch / "fsdp", one)}  # fmt: skip
        for first, second in ((1, 2), (2, 1)):
            run = scratch / f"{first}-then-{second}"
            shutil.copytree(scratch / f"{first}-0", run)
            go_back(run, STEPS // 2)
            train(data, run, second)
            differences[f"{first} process(es) to step {STEPS // 2}, then {second}"] = largest_difference(run, one)
    ratio = harness.ratio_interval([1 / value for value in speeds[2]], [1 / value for value in speeds[1]])
    verdicts = [
        (f"losses of {name} beside one process, {STEPS} steps", "1e-4 relative", f"{value:.1e}", value <= TOLERANCE)
        for name, value in differences.items()
    ]
    verdicts.append(
        ("throughput of two processes against one", "at least 0.9×", harness.interval(ratio), ratio[0] >= 0.9)
    )
    harness.show(
        "processes",
        "Two processes against one",
        [
            (__doc__ or "").strip(),
            "",
            f"Tokens a second, one process: {', '.join(f'{value:,.0f}' for value in speeds[1])}; two: "
            f"{', '.join(f'{value:,.0f}' for value in speeds[2])}. Peak of this machine: "
            f"{harness.describe_peaks(peaks)}. {operations}",
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
