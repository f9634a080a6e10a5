"""What is in the files of a task: how many examples, and of which classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from bertsmith.errors import BertsmithError
from bertsmith.report.page import Html, excerpt, paragraph, section, table
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.entity_scores import spans_of
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tag import Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bertsmith.tasks.task import Task

    NamesOf = Callable[[Any], Sequence[str]]

__all__ = ["LABEL_LENGTH", "MAX_ROWS", "Facts", "class_names", "count_examples", "show_data"]

MAX_ROWS, LABEL_LENGTH = 200, 60


@dataclass
class Facts:
    """Of one file; `error` says why they are not known."""

    num_examples: int = 0
    num_words: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    values: list[float] = field(default_factory=list)
    error: str | None = None


def count_examples(task: Task[Any], name: str, rows: int | None = None) -> Facts:
    """Read a file, or its first `rows` examples."""
    facts = Facts()
    try:
        names_of = _names_of(task)
        for example in islice(task.read(name), rows):
            facts.num_examples += 1
            facts.labels.update(names_of(example))
            if task.kind == "tag":
                facts.num_words += len(example.words)
            elif isinstance(task, Regress) and (target := task.target(example)) is not None:
                facts.values.append(float(target[0]))
    except BertsmithError as error:
        return Facts(error=str(error))
    return facts


def show_data(files: Mapping[str, Facts]) -> Html:
    """The section of all files, by what they are for."""
    known = {use: facts for use, facts in files.items() if facts.error is None}
    parts = [paragraph(f"{use}: {facts.error}") for use, facts in files.items() if facts.error is not None]
    if known:
        parts.append(_sizes(known))
    if any(facts.labels for facts in known.values()):
        parts.append(_labels(known))
    return section("Data", *parts)


def class_names(task: Classify) -> NamesOf:
    """A function that gives the classes of an example, as its file has them."""
    bare = task.changed(labels=None)
    return lambda example: bare.find_labels([example])


def _names_of(task: Task[Any]) -> NamesOf:
    """What is counted in an example."""
    if isinstance(task, Classify):
        return class_names(task)
    if isinstance(task, Tag):
        return lambda example: [span.label for span in spans_of(example.tags or (), plain=task.options.plain)]
    counted: dict[str, NamesOf] = {
        "choose": lambda example: [f"choice {example.label}"],
        "answer": lambda example: ["with an answer" if example.answers else "without an answer"],
    }
    return counted.get(task.kind, lambda _: ())


def _sizes(files: Mapping[str, Facts]) -> Html:
    header, rows = ["file", "examples"], [[use, f"{facts.num_examples:,}"] for use, facts in files.items()]
    if any(facts.num_words for facts in files.values()):
        header.append("words")
        for row, facts in zip(rows, files.values(), strict=True):
            row.append(f"{facts.num_words:,}")
    if any(facts.values for facts in files.values()):
        header += ["least", "mean", "greatest"]
        for row, facts in zip(rows, files.values(), strict=True):
            values = facts.values or [0.0]
            row += [f"{value:g}" for value in (min(values), sum(values) / len(values), max(values))]
    return table(header, rows, "Size of the files")


def _labels(files: Mapping[str, Facts]) -> Html:
    """How often each label occurs, the most frequent first."""
    total = sum((facts.labels for facts in files.values()), Counter[str]())
    rows = []
    for name, _ in total.most_common(MAX_ROWS):
        shares = [facts.labels[name] / max(facts.labels.total(), 1) for facts in files.values()]
        counts = [f"{facts.labels[name]:,}" for facts in files.values()]
        cells = [cell for count, share in zip(counts, shares, strict=True) for cell in (count, f"{share:.1%}")]
        rows.append([excerpt(name, LABEL_LENGTH), *cells])
    header = ["label", *(column for use in files for column in (use, "share"))]
    shown = table(header, rows, "Labels")
    left = len(total) - len(rows)
    return Html(shown + paragraph(f"And {left:,} more, rarer ones.")) if left else shown
