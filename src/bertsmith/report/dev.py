"""A file that tells what is right beside what a model says of it: a run's dev file, or one that was just evaluated.

Predictions that a run has kept are checked for their shape, and the dev file for being the one that they were made
from: with the same content where the run has its digest, as long, and with the same texts and scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bertsmith.config import one_sentence
from bertsmith.errors import DataError, InputError
from bertsmith.finetuning.request import digest_of
from bertsmith.report.figures import read_scores
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.kinds import make_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertsmith.finetuning.request import Request
    from bertsmith.report.page import Html
    from bertsmith.tasks.task import Prediction, Task

__all__ = [
    "PREDICTIONS_FILE",
    "Answered",
    "Chosen",
    "Classified",
    "Dev",
    "Labelled",
    "Tagged",
    "Valued",
    "View",
    "judge",
    "load_dev",
]

PREDICTIONS_FILE = "predictions.jsonl"
_TOLERANCE = 1e-6


class _Found(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Classified(_Found):
    """One class."""

    label: str
    score: float
    scores: dict[str, float]


class Labelled(_Found):
    """Any number of classes."""

    labels: list[str]
    scores: dict[str, float]


class Valued(_Found):
    """A number."""

    value: float


class Chosen(_Found):
    """One of several texts."""

    choice: int
    text: str
    score: float
    scores: list[float]


class Tagged(_Found):
    """A tag for each word."""

    text: str
    tags: list[str]


class Candidate(_Found):
    """A span of a context."""

    text: str
    start: int
    end: int
    score: float


class Answered(_Found):
    """Spans of a context, the best first; `null_margin` is how much better it would be to say none."""

    id: str
    null_margin: float
    candidates: list[Candidate]


class Other(_Found):
    """What a kind says that has no view of its own."""

    model_config = ConfigDict(extra="allow")


_SHAPES: dict[str, type[_Found]] = {
    "classify": Classified,
    "regress": Valued,
    "choose": Chosen,
    "tag": Tagged,
    "answer": Answered,
}

Example = TypeVar("Example")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Dev(Generic[Example, Found]):
    """Examples and their predictions, in the same order; the task knows its classes, and is tuned."""

    task: Task[Any]
    examples: list[Example]
    predictions: list[Found]

    def pairs(self) -> list[tuple[Example, Found]]:
        """Each example with its prediction."""
        return list(zip(self.examples, self.predictions, strict=True))


@dataclass(frozen=True)
class View:
    """What a page shows of them: sections, and their pictures by name."""

    sections: list[Html]
    plots: dict[str, bytes] = field(default_factory=dict)


def judge(task: Task[Any], examples: Sequence[Any], predictions: Sequence[Prediction]) -> Dev[Any, Any]:
    """Examples with what was predicted of them just now."""
    shape = _shape_of(task)
    return Dev(task, list(examples), [shape.model_validate(prediction) for prediction in predictions])


def load_dev(run: Path, request: Request) -> Dev[Any, Any]:
    """Read both; an error says why they cannot be shown together."""
    name = str(request.dev)
    task = make_task(request.kind, request.options)
    predictions = _read_predictions(run / PREDICTIONS_FILE, _shape_of(task))
    if isinstance(first := predictions[0], Classified | Labelled):
        task = task.with_labels(list(first.scores))
    if Path(name).is_file() and request.dev_digest not in (None, digest_of(name)):
        raise _changed(name, "its content is another")
    examples = list(task.read(name))
    if len(examples) != len(predictions):
        raise _changed(name, f"it holds {len(examples):,} examples, and there are {len(predictions):,} predictions")
    for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True), start=1):
        if not _belong(example, prediction, task):
            raise _changed(name, f"example {number:,} is not the one that was predicted")
    plain = [prediction.model_dump() for prediction in predictions]
    task = task.tune(examples, plain)
    kept, now = read_scores(run) or {}, task.score(examples, plain)
    for score, value in now.items():
        if abs(kept.get(score, value) - value) > _TOLERANCE:
            raise _changed(name, f"{score} would be {value:.4f}, and was {kept[score]:.4f}")
    return Dev(task, examples, predictions)


def _shape_of(task: Task[Any]) -> type[_Found]:
    severally = isinstance(task, Classify) and task.options.multilabel
    return Labelled if severally else _SHAPES.get(task.kind, Other)


def _read_predictions(path: Path, shape: type[_Found]) -> list[_Found]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not lines:
        raise InputError(f"{path}: holds no prediction")
    return [_read_prediction(path, number, line, shape) for number, line in enumerate(lines, start=1)]


def _read_prediction(path: Path, number: int, line: bytes, shape: type[_Found]) -> _Found:
    try:
        return shape.model_validate_json(line)
    except ValidationError as error:
        raise InputError(f"{path}, line {number}: is no prediction of this task ({one_sentence(error)})") from error


def _belong(example: Any, prediction: _Found, task: Task[Any]) -> bool:
    """Whether a prediction can be one of an example, as far as it tells."""
    match prediction:
        case Classified():
            named = {prediction.label, str(example.label)} <= {*prediction.scores}
            return named and list(prediction.scores) == list(task.labels)
        case Labelled():
            return {*prediction.labels} <= {*prediction.scores} and list(prediction.scores) == list(task.labels)
        case Chosen():
            fits = 0 <= prediction.choice < len(example.choices) == len(prediction.scores)
            return fits and example.choices[prediction.choice] == prediction.text
        case Tagged():
            return bool(prediction.text == example.text and len(prediction.tags) == len(example.words))
        case Answered():
            here = all(example.context[each.start : each.end] == each.text for each in prediction.candidates[:1])
            return here and prediction.id == example.id
    return True


def _changed(name: str, why: str) -> DataError:
    return DataError(f"{name}: has changed since the run, so its examples are not shown: {why}")
