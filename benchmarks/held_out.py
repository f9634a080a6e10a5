"""What comparisons of whole training runs share: the data, one fixed held-out set, and runs kept by name.

The data: en-general and en-web of ../shared/data with BERT's own vocabulary of 30,522. The held-out set: its held-out
documents as full-length text of up to 128 tokens without pairs, 15% of the pieces masked, always the same; that is how
`run_mlm` trains, and what neither of our recipes trains on. What came of a finished run is kept in
docs/results/comparison-runs.jsonl and not repeated.
"""

from __future__ import annotations

import datetime
import json
import statistics
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import harness
from bertsmith.data.building import build_shards
from bertsmith.data.examples import ExampleOptions, Examples, cut_by_tokens
from bertsmith.data.masking import Masking
from bertsmith.data.shards import ShardSet
from bertsmith.folders import write_whole
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.model.losses import tied_cross_entropy
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.request import make_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World
from kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bertsmith.model.heads import MaskedLM, PreTrainingModel
    from bertsmith.train.loop import Loop

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT.parent / "shared" / "data" / "corpus"
FILES = [str(CORPORA / name) for name in ("en-general.jsonl", "en-web.jsonl")]
HERE = ROOT / "runs" / "comparisons"
RECORDS = Kept(harness.RESULTS / "comparison-runs.jsonl")
SIZE = "mini"
LENGTH = 128


@cache
def data_folder() -> Path:
    """The shards; built once, and kept beside the runs."""
    folder = HERE / "shards"
    build_shards(FILES, open_tokenizer("minilm"), folder, workers=2)
    return folder


@cache
def _batches(length: int) -> list[list[torch.Tensor]]:
    """Made once and kept: runs of different days are compared on the same."""
    path = HERE / ("held-out.npz" if length == LENGTH else f"held-out-{length}.npz")
    if not path.exists():
        made = {f"{number}.{column}": array for number, batch in enumerate(_make_batches(length))
                for column, array in enumerate(batch)}  # fmt: skip
        write_whole(path, lambda file: np.savez(file, **made))  # type: ignore[arg-type]
    stored = np.load(path)
    return [[torch.from_numpy(stored[f"{n}.{column}"]) for column in range(5)] for n in range(len(stored.files) // 5)]


def _make_batches(length: int) -> list[tuple[np.ndarray, ...]]:
    folder = data_folder()
    options = ExampleOptions(max_length=length, pairs="none", masking=Masking("piece"), seed=1)
    examples = Examples(ShardSet(folder, "holdout"), open_tokenizer(str(folder)), options)
    cuts = cut_by_tokens(examples.plan(0).lengths, 8192).tolist()
    made = [examples.batch(0, np.arange(start, stop)) for start, stop in pairwise(cuts)]
    return [(b.input_ids, b.token_type_ids, b.lengths, b.positions, b.labels) for b in made]


@torch.no_grad()
def held_out_loss(model: MaskedLM | PreTrainingModel, length: int = LENGTH) -> float:
    """The loss of masked words on the fixed set, in text of up to so many tokens."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for *inputs, positions, labels in _batches(length):
        rows = model.encoder(*inputs, read=positions).rows
        table = model.encoder.embeddings.word.weight
        loss, _ = tied_cross_entropy(model.mlm.transform(rows), table, model.mlm.bias, labels)
        total, count = total + loss.item(), count + len(labels)
    model.train(was_training)
    return total / count


def kept(name: str, run: Callable[[], dict[str, Any]], asked: Any) -> dict[str, Any]:
    """What a run gave, now or earlier; one that was asked for otherwise is refused, so that no page shows it."""
    asked = json.loads(json.dumps(asked))
    found = RECORDS.find(name)
    if found is None:
        found = {**run(), "asked": asked, "date": datetime.date.today().isoformat()}
        RECORDS.add(name, found)
    if found["asked"] != asked:
        raise SystemExit(f"{RECORDS.path}: {name} was made with other settings; remove its line to make it again")
    return found


def dates_of(runs: Iterable[dict[str, Any]]) -> str:
    """On which days runs were made."""
    return f"Runs of {' and '.join(sorted({run['date'] for run in runs}))}."


def settings_of(recipe: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Everything that decides a run of ours, for `kept`."""
    return make_request(data_folder(), size=SIZE, recipe=recipe, changes=changes).settings.model_dump(mode="json")


def prepare(recipe: str, total: int, changes: dict[str, Any]) -> Loop:
    """A run of ours, ready for its first step."""
    request = make_request(data_folder(), size=SIZE, recipe=recipe, changes=changes)
    return PretrainingRun(request, HERE / "none", World(), Observer()).make_loop(total)


def step_operations(recipe: str, changes: dict[str, Any]) -> str:
    """What a step needs, in a sentence."""
    return harness.describe_step(prepare(recipe, 1000, changes).work)


class Pace:
    """Seconds a step of a run of ours, phase by phase; batches differ in size, so several steps are one sample."""

    def __init__(self, recipe: str, changes: dict[str, Any]) -> None:
        self.loop = prepare(recipe, 1000, changes)
        settings = self.loop.work.settings  # type: ignore[attr-defined]
        self.shares = [phase.share for phase in settings.phases]
        begins = [0, *settings.phase_ends(1000)[:-1]]
        self.places = [
            Progress(step=begin, position={"phase": n, "epoch": 0, "batch": 0}) for n, begin in enumerate(begins)
        ]
        self.samples: list[list[float]] = [[] for _ in begins]

    def sample(self, steps: int = 4) -> None:
        """One more for each phase."""
        for number, progress in enumerate(self.places):
            seconds = 0.0
            for _ in range(steps):
                progress, record = self.loop.take_step(progress)
                seconds += record.seconds
            self.samples[number].append(seconds / steps)

    def seconds(self) -> float:
        """Of a step, over the whole run; the first sample, when everything is new, does not count."""
        return sum(share * statistics.median(times[1:]) for share, times in zip(self.shares, self.samples, strict=True))


def train_ours(recipe: str, steps: int, changes: dict[str, Any], marks: int = 1) -> dict[str, Any]:
    """A run of ours to its end: the held-out loss over the steps."""
    loop, progress, curve = prepare(recipe, steps, changes), Progress(), []
    wanted = {round(steps * (number + 1) / marks) for number in range(marks)}
    while progress.step < steps:
        progress, _ = loop.take_step(progress)
        if progress.step in wanted:
            curve.append([progress.step, held_out_loss(loop.model)])  # type: ignore[arg-type]
            print(f"{recipe}, step {progress.step} of {steps}: {curve[-1][1]:.4f}", flush=True)
    return {"steps": steps, "tokens": progress.tokens, "curve": curve}
