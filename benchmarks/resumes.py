"""A pre-training run of 300 steps killed with SIGKILL 20 times, each time in a new run that is then resumed to its end.

A tiny BERT on en-web with a vocabulary of 8,192, a checkpoint every 20 steps, one machine, two threads. Moments are
random, except that two of the kills wait until a checkpoint is being written. For each: the last step that was logged
when the process died, whether the final weights are bit for bit those of the run that nobody disturbed, whether the
log of example numbers is the same (every example of the steps that count once), and how soon it went on. The run goes
from examples of 128 tokens to those of 512.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from bertsmith.data.building import build_shards
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.request import read_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.train.distributed import World
from bertsmith.train.metrics import read_log

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus" / "en-web.jsonl"
STEPS, EVERY = 300, 20
INSIDE_A_WRITE = 2
PATIENCE = 600.0
SOON = 30  # seconds, of which most go into loading torch


@dataclass(frozen=True)
class Kill:
    """One kill and what came of it."""

    step: int
    writing: bool
    same_weights: bool
    same_examples: bool
    resumed_in: float


def begin(data: Path, run: Path) -> subprocess.Popen[bytes]:
    """Start or go on."""
    command = [
        sys.executable,
        "-m",
        "bertsmith",
        "pretrain",
        "--shards",
        str(data),
        "--size",
        "tiny",
        "--output",
        str(run),
    ]
    command += ["--steps", str(STEPS), "--set", f"checkpoint.every={EVERY}", "--set", "dropout=0.1", "--resume"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def finish(data: Path, run: Path) -> None:
    """Run to the end."""
    if begin(data, run).wait(PATIENCE):
        raise RuntimeError(f"{run}: the run failed")


def last_step(run: Path) -> int:
    """The last step that is in the log."""
    log = run / "examples.jsonl"
    return max((entry["step"] for entry in read_log(log)), default=0) if log.exists() else 0


def unfinished(run: Path) -> bool:
    """Whether a checkpoint is being written."""
    folder = run / "checkpoints"
    return folder.is_dir() and any(path.name.startswith(".step-") for path in folder.iterdir())


def digest(run: Path) -> str:
    """Of the final weights."""
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def examples(run: Path) -> bytes:
    """The log of example numbers."""
    return (run / "examples.jsonl").read_bytes()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Look often."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)


def kill_once(data: Path, run: Path, whole: Path, rng: random.Random, *, inside: bool) -> Kill:
    """Begin, kill, go on, compare."""
    process = begin(data, run)
    if inside:
        first = rng.randrange(EVERY, STEPS - EVERY)
        wait_until(lambda: last_step(run) >= first, process)
        wait_until(lambda: unfinished(run), process)
    else:
        moment = rng.randrange(1, STEPS - 1)
        wait_until(lambda: last_step(run) >= moment, process)
        time.sleep(rng.random() * 0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    step, writing = last_step(run), unfinished(run)
    seconds = finish_timed(data, run)
    return Kill(step, writing, digest(run) == digest(whole), examples(run) == examples(whole), seconds)


def finish_timed(data: Path, run: Path) -> float:
    """Run to the end; gives the seconds from the start of the process to the first new step in the log."""
    saved = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    log, before, begun = run / "examples.jsonl", max(saved, default=0), time.time()
    process = begin(data, run)
    wait_until(lambda: log.exists() and log.stat().st_mtime > begun and last_step(run) > before, process)
    seconds = time.time() - begun
    if process.wait(PATIENCE):
        raise RuntimeError(f"{run}: the run failed")
    return seconds


def table_row(number: int, kill: Kill) -> str:
    """As the page has it."""
    weights, log = ("yes" if same else "**no**" for same in (kill.same_weights, kill.same_examples))
    writing = "yes" if kill.writing else ""
    return f"| {number} | {kill.step} | {writing} | {weights} | {log} | {kill.resumed_in:.1f} |"


def judge(kills: list[Kill]) -> list[tuple[str, str, str, bool]]:
    """Target against measurement."""
    count = len(kills)
    right = sum(kill.same_weights and kill.same_examples for kill in kills)
    between = sum(EVERY <= kill.step < STEPS - 1 for kill in kills)
    writing = sum(kill.writing for kill in kills)
    slowest = max(kill.resumed_in for kill in kills)
    return [
        ("weights and example numbers as if undisturbed", f"{count} of {count}", f"{right}", right == count),
        ("kills between the first and the last checkpoint", "at least half", f"{between}", 2 * between >= count),
        ("kills inside the writing of a checkpoint", "at least 1", f"{writing}", writing > 0),
        ("seconds from starting again to the next step", f"at most {SOON}", f"{slowest:.0f} at most", slowest <= SOON),
    ]


def main() -> int:
    """Kill, compare, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    rng = random.Random(options.seed)
    kills = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        vocab([str(CORPUS)], output=scratch / "vocab", options=VocabOptions(size=8192))
        data = scratch / "data"
        build_shards([str(CORPUS)], open_tokenizer(str(scratch / "vocab")), data, workers=2)
        finish(data, scratch / "whole")
        run = PretrainingRun(read_request(scratch / "whole"), scratch / "whole", World(), Observer())
        operations = harness.describe_step(run.make_loop(STEPS).work)
        for number in range(options.kills):
            run = scratch / f"run-{number}"
            kills.append(kill_once(data, run, scratch / "whole", rng, inside=number < INSIDE_A_WRITE))
            print(kills[-1], file=sys.stderr, flush=True)
    verdicts = judge(kills)
    harness.show(
        "resumes",
        "Killed and resumed",
        [
            (__doc__ or "").strip(),
            "",
            "| kill | step | inside a write | weights the same | examples the same | seconds to the next step |",
            "|---|---|---|---|---|---|",
            *map(table_row, range(1, len(kills) + 1), kills),
            "",
            *harness.verdict_table(verdicts),
            "",
            f"Peak of this machine in float32: {harness.describe_peaks([harness.measure_peak()])}. {operations}",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
