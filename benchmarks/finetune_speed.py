"""A fine-tuning step of ours against `transformers`' Trainer: 2,000 sentences, MiniLM, the same batches in order.

SST-2 and CoNLL-2003. The Trainer pads to the longest of a batch, and for SST-2 also to 128, as `run_glue` does. Both
sides train whole epochs, in turn; a step is all that happens from one step to the next, data included, and neither side
writes a log. We train the rows of the word table that occur in the file, so that a larger file makes our steps a little
slower: a line has the whole file's words, with the same sentences. The interval is that over rounds, of which each has
its median. Memory is the highest mark of a process of its own while it trains.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import harness
from bertsmith.finetuning import run
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.request import make_request
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "tasks"
ROWS = 2000
FILES = {"sst2": "glue/SST-2/train.tsv", "conll2003": "conll2003/train.txt"}
FIXED = 128
WHOLE = "bertsmith, the whole file's words"  # read as if it were the dev file


def make_run(preset: str, *, dev: str | None = None) -> FinetuningRun:
    """A run that is not begun; one epoch."""
    train = TASKS / FILES[preset]
    request = make_request("minilm", preset=preset, train=train, dev=dev, rows=ROWS, changes={"epochs": 1})
    return FinetuningRun(request, Path("none"), World(), Observer())


class Ours:
    """An epoch of our loop, step by step."""

    def __init__(self, preset: str, *, dev: str | None = None) -> None:
        self.run = make_run(preset, dev=dev)
        self.rounds: list[list[float]] = []  # seconds of each step
        self.operations: list[float] = []  # of each step of an epoch

    @property
    def num_words(self) -> int:
        """Rows of the word table that are trained."""
        return len(self.run.bundle.model.encoder.embeddings.word.weight)

    def __call__(self) -> None:
        """An epoch; its first step does not count, as of the Trainer, whose clock starts at that step's end."""
        loop, progress, records, ends = self.run.make_loop(self.run.total), Progress(), [], []
        for _ in range(self.run.total):
            progress, record = loop.take_step(progress)
            records.append(record)
            ends.append(time.perf_counter())
        self.rounds.append([end - begin for begin, end in pairwise(ends)])
        self.operations = [record.counts["operations"] for record in records[1:]]


class Peer:
    """An epoch of the Trainer."""

    def __init__(self, preset: str, scratch: Path, pad_to: int | None) -> None:
        self.run, self.scratch, self.pad_to = make_run(preset), scratch, pad_to
        self.rounds: list[list[float]] = []

    def prepare(self) -> Any:
        """A Trainer at its first step."""
        from trainer import make_trainer

        return make_trainer(self.run, self.scratch, pad_to=self.pad_to, evaluate=False)

    def __call__(self) -> None:
        """An epoch."""
        trainer, times = self.prepare()
        trainer.train()
        self.rounds.append(times.seconds)


def memory_of(which: str, answer: Any) -> None:
    """In a process of its own: MiB that it holds at most in an epoch, and beyond what it held before."""
    torch.set_num_threads(2)
    epoch: Callable[[], object]
    with tempfile.TemporaryDirectory() as scratch:
        if which == "bertsmith":
            epoch = Ours("sst2")
        else:
            run.keep_freed_memory = lambda **_: False  # type: ignore[attr-defined]  # that is how we treat ourselves
            peer = Peer("sst2", Path(scratch), FIXED if "128" in which else None)
            epoch = peer.prepare()[0].train
            del peer.run.bundle  # our own copy of the model is none of the Trainer's
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what loading has freed is nobody's
        Path("/proc/self/clear_refs").write_text("5")  # forget the highest mark so far
        before = harness.resident()["VmRSS"]
        epoch()
        most = harness.resident()["VmHWM"]
        answer.put((most, most - before))


def measure_memory() -> dict[str, tuple[float, float]]:
    """All sides, one after the other."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for which in ("bertsmith", "Trainer, to the longest", "Trainer, to 128"):
        answer = context.Queue()
        process = context.Process(target=memory_of, args=(which, answer))
        process.start()
        process.join(900)
        assert process.exitcode == 0, f"{which}: the process that was to be measured failed"
        found[which] = answer.get()
    return found


def measure_speed(options: Any) -> int:
    """Measure on two threads, print; gives 1 where a target is missed."""
    torch.set_num_threads(2)
    rows, verdicts, peaks = [], [], []
    for preset in FILES:
        with tempfile.TemporaryDirectory() as scratch:
            sides: dict[str, Any] = {"bertsmith": Ours(preset), WHOLE: Ours(preset, dev=str(TASKS / FILES[preset]))}
            sides["Trainer, to the longest"] = Peer(preset, Path(scratch), None)
            if preset == "sst2":
                sides["Trainer, to 128"] = Peer(preset, Path(scratch), FIXED)
            _, found = harness.take_turns(sides, options.rounds)
        peaks += found
        ours = sides["bertsmith"]
        share = harness.peak_share(sum(ours.operations), [sum(seconds) for seconds in ours.rounds], found)
        medians = {name: [statistics.median(seconds) for seconds in side.rounds] for name, side in sides.items()}
        for name, side in sides.items():
            own = (f"{statistics.mean(ours.operations) / 1e9:.1f}", f"{share:.0%}") if side is ours else ("", "")
            shown = f"{name}, {side.num_words:,} rows of the word table" if isinstance(side, Ours) else name
            steps = " × ".join(str(count) for count in (len(side.rounds), len(side.rounds[0])))
            cells = (preset, shown, f"{1000 * statistics.median(medians[name]):.0f}", steps, *own)
            rows.append(f"| {' | '.join(cells)} |")
        targets = {"Trainer, to the longest": 2.5, "Trainer, to 128": 6.0}
        for name in [name for name in sides if name in targets]:
            ratio = harness.ratio_interval(medians["bertsmith"], medians[name])
            what = f"{preset}, a step against {name}"
            verdicts.append((what, f"at least {targets[name]}×", harness.interval(ratio), ratio[0] >= targets[name]))
    memory = measure_memory()
    against = memory["bertsmith"][0] / memory["Trainer, to 128"][0]
    verdicts.append(("sst2, memory against Trainer, to 128", "at most 0.6×", f"{against:.2f}×", against <= 0.6))
    harness.show(
        "finetune-speed",
        "The speed of fine-tuning",
        [
            (__doc__ or "").strip(),
            "",
            f"Peak of this machine in float32: {harness.describe_peaks(peaks)}. The share of it counts the operations "
            "of the matrix products that our steps need.",
            "",
            "| set | side | ms a step, median | rounds × steps | GFLOP a step, mean | share of peak |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "| sst2 | MiB at most | beyond the loaded model and data |",
            "|---|---|---|",
            *(f"| {name} | {most:,.0f} | {beyond:,.0f} |" for name, (most, beyond) in memory.items()),
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("transformers", "accelerate"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1
