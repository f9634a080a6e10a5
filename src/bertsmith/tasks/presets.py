"""Presets: tasks that people know by name, with their columns, measures, lengths, and the paper's settings.

The eleven of the paper (GLUE's eight, SQuAD 1.1 and 2.0, SWAG), WNLI, CoNLL-2003, and Chinese ones. `files` are the
names of train and dev inside a folder, as the set is distributed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError
from bertsmith.tasks.tables import SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GLUE", "PRESETS", "Preset", "find_preset"]


@dataclass(frozen=True)
class Preset:
    """`options` are those of the kind of task, `settings` those of fine-tuning; `reported` is what tables print."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    reported: tuple[str, ...] = ("accuracy",)
    folder: str = ""
    files: tuple[str, str] = ("train.tsv", "dev.tsv")
    second_dev: str | None = None  # another dev file, that GLUE's table has besides
    prefix: str = ""  # what the names of files may begin with, where several sets are in one folder

    def find(self, folder: Path) -> tuple[Path, Path]:
        """Its train and dev file in a folder, or in its own folder there; also as another kind of file."""
        own = folder / self.folder
        place = own if own.is_dir() else folder
        train, dev = self.files
        found = [
            (_find(place / f"{begin}{train}"), _find(place / f"{begin}{dev}"))
            for begin in ("", *(f"{self.prefix}{mark}" for mark in "_." if self.prefix))
        ]
        return next((pair for pair in found if pair[0].is_file()), found[0])

    def find_second(self, folder: Path) -> Path | None:
        """Its second dev file, where it has one and it is there."""
        path = None if self.second_dev is None else _find(folder / self.second_dev)
        return path if path is not None and path.is_file() else None


def _find(path: Path) -> Path:
    begin, *rest = path.stem.split("_")
    stems = [begin, *(stem for stem in _DEV if begin in _DEV and stem != begin)]
    named = [
        path.with_stem("_".join([stem, *rest])).with_suffix(suffix)
        for stem in stems
        for suffix in (path.suffix, *SUFFIXES)
    ]
    return next((file for file in named if file.is_file()), path)


def _texts(*columns: str | int, **more: Any) -> dict[str, Any]:
    names = ("text", "label") if len(columns) == 2 else ("text", "pair", "label")
    return {"columns": dict(zip(names, columns, strict=True)), **more}


_DEV = ("dev", "val", "valid", "validation")
_NLI = ("entailment", "not_entailment")
_MNLI = ("contradiction", "entailment", "neutral")
_PAPER = {"epochs": 3, "batch.size": 32}
_QUESTIONS = {"epochs": 3, "batch.size": 32, "optimizer.rate": 5e-5}
_ENTITIES = {"epochs": 4, "batch.size": 32, "optimizer.rate": 5e-5}
_F1_FIRST, _BOTH = ("f1", "accuracy"), ("pearson", "spearman")

PRESETS: dict[str, Preset] = {
    "cola": Preset("classify", _texts(4, 2, labels=("0", "1"), metric="matthews"), _PAPER, ("matthews",), "CoLA"),
    "sst2": Preset("classify", _texts("sentence", "label", labels=("0", "1")), _PAPER, folder="SST-2"),
    "mrpc": Preset("classify", _texts("#1 String", "#2 String", "Quality", labels=("0", "1"), metric="f1"), _PAPER,
                   _F1_FIRST, "MRPC"),
    "stsb": Preset("regress", _texts("sentence1", "sentence2", "score"), _PAPER, _BOTH, "STS-B"),
    "qqp": Preset("classify", _texts("question1", "question2", "is_duplicate", labels=("0", "1"), metric="f1",
                                     lenient=True), _PAPER, _F1_FIRST, "QQP"),
    "mnli": Preset("classify", _texts("sentence1", "sentence2", "gold_label", labels=_MNLI), _PAPER, folder="MNLI",
                   files=("train.tsv", "dev_matched.tsv"), second_dev="dev_mismatched.tsv"),
    "qnli": Preset("classify", _texts("question", "sentence", "label", labels=_NLI), _PAPER, folder="QNLI"),
    "rte": Preset("classify", _texts("sentence1", "sentence2", "label", labels=_NLI), _PAPER, folder="RTE"),
    "wnli": Preset("classify", _texts("sentence1", "sentence2", "label", labels=("0", "1")), _PAPER, folder="WNLI"),
    "squad1": Preset("answer", {}, _QUESTIONS, ("exact_match", "f1"), "", ("train-v1.1.json", "dev-v1.1.json")),
    "squad2": Preset("answer", {"unanswerable": True}, {**_QUESTIONS, "epochs": 2, "batch.size": 48},
                     ("exact_match", "f1"), "", ("train-v2.0.json", "dev-v2.0.json")),
    "swag": Preset("choose", {"columns": {"text": "sent1", "prefix": "sent2", "label": "label",
                                          "choices": "ending0,ending1,ending2,ending3"}},
                   {"epochs": 3, "batch.size": 16, "optimizer.rate": 2e-5}, files=("train.csv", "val.csv")),
    "openbookqa": Preset("choose", {"columns": {"text": "question.stem", "choices": "question.choices",
                                                "label": "answerKey"}}, {"epochs": 3, "batch.size": 16},
                         files=("train.jsonl", "dev.jsonl")),
    "conll2003": Preset("tag", {"columns": {"word": 1, "tag": -1}}, _ENTITIES, ("f1",), "", ("train.txt", "dev.txt")),
    "chnsenticorp": Preset("classify", _texts("text_a", "label", labels=("0", "1"), max_length=256), _PAPER),
    "thucnews": Preset("classify", _texts(1, 2, max_length=64), _PAPER),
    "lcqmc": Preset("classify", _texts("sentence1", "sentence2", "label", labels=("0", "1")), _PAPER),
    "afqmc": Preset("classify", _texts("sentence1", "sentence2", "label", labels=("0", "1")), _PAPER),
    "ocnli": Preset("classify", _texts("sentence1", "sentence2", "label", labels=_MNLI, lenient=True), _PAPER),
    "weibo": Preset("tag", {"max_length": 256, "characters": True}, _ENTITIES, ("f1",), "", ("train.txt", "dev.txt")),
    "resume": Preset("tag", {"max_length": 256, "characters": True}, _ENTITIES, ("f1",), "", ("train.txt", "dev.txt")),
    "cluener": Preset("tag", {"characters": True}, _ENTITIES, ("f1",), "", ("train.json", "dev.json")),
    "cmrc2018": Preset("answer", {"language": "zh", "max_length": 512, "max_answer": 100}, {**_QUESTIONS, "epochs": 2},
                       ("exact_match", "f1"), "", ("train.json", "dev.json"), prefix="cmrc2018"),
}  # fmt: skip

# GLUE's tasks in the order of its table; WNLI is left out of the paper's average, and is here where its files are.
GLUE = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte", "wnli")


def find_preset(name: str) -> Preset:
    """A preset by name."""
    if name not in PRESETS:
        raise ConfigError(f"preset: {name!r} is not one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
