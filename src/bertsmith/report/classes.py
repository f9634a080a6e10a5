"""Classes and choices: what is taken for what, how sure the model is, and where it is sure and wrong."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from bertsmith.report.dev import View
from bertsmith.report.facts import LABEL_LENGTH, MAX_ROWS, class_names
from bertsmith.report.page import Html, excerpt, heat_table, paragraph, picture, pictures, quoted, section, table
from bertsmith.report.plots import draw_reliability
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.scores import calibration, confusion, per_class, score_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bertsmith.report.dev import Chosen, Classified, Dev, Labelled
    from bertsmith.tasks.choose import ChoiceExample
    from bertsmith.tasks.scores import ClassScore
    from bertsmith.tasks.texts import TextExample

__all__ = ["MAX_MISTAKES", "count_wrong", "show_choices", "show_class_scores", "show_classes", "text_columns"]

MAX_MISTAKES = 25
_MAX_CHOICES = 10  # of one text, besides the gold one and the guess
_MAX_CONFUSED = 25  # classes of a whole table; of more, only the pairs that are confused most


def show_classes(dev: Dev[TextExample, Any]) -> View:
    """All of `classify`."""
    assert isinstance(dev.task, Classify)
    if dev.task.options.multilabel:
        return _show_several(dev, dev.task)
    return _show_single(dev)


def _show_single(dev: Dev[TextExample, Classified]) -> View:
    golds = [str(example.label) for example in dev.examples]
    guesses = [prediction.label for prediction in dev.predictions]
    right = [gold == guess for gold, guess in zip(golds, guesses, strict=True)]
    sure = show_calibration([prediction.score for prediction in dev.predictions], right)
    wrong = [pair for pair, hit in zip(dev.pairs(), right, strict=True) if not hit]
    wrong.sort(key=lambda pair: -pair[1].score)
    header, texts = text_columns([example for example, _ in wrong[:MAX_MISTAKES]])
    rows = [
        [*cells, *map(_label, (str(example.label), found.label)),
         f"{found.score:.1%}", f"{found.scores[str(example.label)]:.1%}"]
        for cells, (example, found) in zip(texts, wrong, strict=False)
    ]  # fmt: skip
    header += ["gold", "guess", "its probability", "gold's probability"]
    return View(
        [
            section("What is taken for what", _confusion(golds, guesses, dev.task.labels)),
            section("Classes", show_class_scores(per_class(golds, guesses, dev.task.labels))),
            *sure.sections,
            section("Most confident mistakes", _mistakes(len(wrong), len(golds), header, rows)),
        ],
        sure.plots,
    )


def _confusion(golds: Sequence[str], guesses: Sequence[str], labels: Sequence[str]) -> Html:
    if len(labels) <= _MAX_CONFUSED:
        names = [_label(label) for label in labels]
        shares = paragraph("A row for each gold class, a column for each guess; shares are of the row.")
        return Html(shares + heat_table("gold \\ guess", names, names, confusion(golds, guesses, labels)))
    support = Counter(golds)
    pairs = Counter((gold, guess) for gold, guess in zip(golds, guesses, strict=True) if gold != guess)
    rows = [
        [_label(gold), _label(guess), f"{count:,}", f"{count / support[gold]:.1%}"]
        for (gold, guess), count in pairs.most_common(MAX_MISTAKES)
    ]
    return table(["gold", "guess", "times", "share of gold"], rows, "Classes that are confused most")


def show_class_scores(scores: Mapping[str, ClassScore]) -> Html:
    """Precision, recall and F1 of each class; of very many, the most frequent."""
    chosen = scores if len(scores) <= MAX_ROWS else sorted(scores, key=lambda name: -scores[name].support)[:MAX_ROWS]
    rows = [
        [_label(name), *(f"{value:.1%}" for value in (score.precision, score.recall, score.f1)), f"{score.support:,}"]
        for name, score in ((name, scores[name]) for name in chosen)
    ]
    shown = table(["class", "precision", "recall", "F1", "support"], rows, "Scores of each class")
    left = len(scores) - len(rows)
    return Html(shown + paragraph(f"And {left:,} more, rarer ones.")) if left else shown


def show_calibration(confidences: Sequence[float], correct: Sequence[bool], counted: str = "examples") -> View:
    """Whether the model is right as often as it believes; `counted` is what there are so many of."""
    found = calibration(confidences, correct)
    rows = [
        [f"{each.low:.1f} to {each.high:.1f}", f"{each.count:,}", f"{each.confidence:.1%}", f"{each.accuracy:.1%}"]
        for each in found.bins
        if each.count
    ]
    png = draw_reliability(found)
    content = [
        paragraph(f"Expected calibration error: {found.error:.1%}."),
        pictures([picture(png, "How often each confidence is right; the table below has the numbers")]),
        table(["confidence", counted, "mean confidence", "right"], rows, "Calibration by confidence"),
    ]
    return View([section("Calibration", *content)], {"calibration": png})


def _show_several(dev: Dev[TextExample, Labelled], task: Classify) -> View:
    """Any number of classes a text: the classes one by one, every yes and no, and the texts with the greatest error."""
    names_of = class_names(task)
    golds = [set(names_of(example)) for example in dev.examples]
    support = Counter(name for gold in golds for name in gold)
    found = Counter(name for prediction in dev.predictions for name in prediction.labels)
    correct = Counter(
        name for gold, guess in zip(golds, dev.predictions, strict=True) for name in gold.intersection(guess.labels)
    )
    scores = {name: score_counts(correct[name], found[name], support[name]) for name in task.labels}
    said = [
        (share, name in gold)
        for gold, guess in zip(golds, dev.predictions, strict=True)
        for name, share in guess.scores.items()
    ]
    sure = show_calibration(
        [max(share, 1 - share) for share, _ in said],
        [(share > 0.5) == is_so for share, is_so in said],
        "yes or no, at one half",
    )
    wrong = []
    for gold, (example, guess) in zip(golds, dev.pairs(), strict=True):
        gaps = {name: guess.scores.get(name, 0.0) for name in gold ^ set(guess.labels)}
        if gaps:
            worst = max(1 - share if name in gold else share for name, share in gaps.items())
            wrong.append((worst, example, gold, gaps))
    wrong.sort(key=lambda each: -each[0])
    header, texts = text_columns([example for _, example, _, _ in wrong[:MAX_MISTAKES]])
    rows = [
        [*cells, _joined(gold), _with_shares(gaps, gold), _with_shares(gaps, set(gaps) - gold)]
        for cells, (_, _, gold, gaps) in zip(texts, wrong, strict=False)
    ]
    header += ["gold", "missed", "wrongly named"]
    return View(
        [
            section("Classes", show_class_scores(scores)),
            *sure.sections,
            section("Most confident mistakes", _mistakes(len(wrong), len(golds), header, rows)),
        ],
        sure.plots,
    )


def text_columns(examples: Sequence[TextExample]) -> tuple[list[str], list[list[str]]]:
    """The first columns of a table of examples: their line, text and, where any has one, the second text."""
    paired = any(example.pair is not None for example in examples)
    rows = [
        [f"{example.place.line:,}", quoted(example.text), *([quoted(example.pair or "")] if paired else [])]
        for example in examples
    ]
    return ["line", "text", *(["second text"] if paired else [])], rows


def _mistakes(num_wrong: int, num_all: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    if not num_wrong:
        return paragraph("None: all are right.")
    summary = paragraph(f"{count_wrong(num_wrong, num_all, 'are wrong')} Lines are those of the file.")
    return Html(summary + table(header, rows, "Most confident mistakes"))


def count_wrong(num_wrong: int, num_all: int, what: str) -> str:
    """A sentence above mistakes, of which not all may be shown."""
    shown = f", the first {MAX_MISTAKES} are shown" if num_wrong > MAX_MISTAKES else ""
    return f"{num_wrong:,} of {num_all:,} {what}{shown}."


def _joined(names: set[str]) -> str:
    return excerpt(", ".join(_label(name) for name in sorted(names)), 300) or "none"


def _with_shares(gaps: Mapping[str, float], chosen: set[str]) -> str:
    named = sorted(name for name in gaps if name in chosen)
    return excerpt(", ".join(f"{_label(name)} ({gaps[name]:.1%})" for name in named), 300)


def _label(name: str) -> str:
    return excerpt(name, LABEL_LENGTH)


def show_choices(dev: Dev[ChoiceExample, Chosen]) -> View:
    """All of `choose`."""
    right = [example.label == prediction.choice for example, prediction in dev.pairs()]
    sure = show_calibration([prediction.score for prediction in dev.predictions], right)
    wrong = [pair for pair, hit in zip(dev.pairs(), right, strict=True) if not hit]
    wrong.sort(key=lambda pair: -pair[1].score)
    accuracy = f"{sum(right):,} of {len(right):,} are right: an accuracy of {sum(right) / len(right):.1%}."
    count = paragraph(f"{count_wrong(len(wrong), len(right), 'are wrong')} Lines are those of the file.")
    listed = "".join(_choices(*pair) for pair in wrong[:MAX_MISTAKES])
    mistakes = Html(f'{count}<ol class="examples">{listed}</ol>') if wrong else paragraph("None: all are right.")
    return View(
        [
            section("Choices", paragraph(accuracy)),
            *sure.sections,
            section("Most confident mistakes", mistakes),
        ],
        sure.plots,
    )


def _choices(example: ChoiceExample, found: Chosen) -> str:
    """A text with its choices; the gold one and the guess are named."""
    lines = ""
    for number, (choice, share) in enumerate(zip(example.choices, found.scores, strict=True)):
        side = "gold" if number == example.label else "guess" if number == found.choice else ""
        if number >= _MAX_CHOICES and not side:
            continue
        text = escape(excerpt(choice, 200))
        shown = f'<mark class="{side}">{text} <small>{side}</small></mark>' if side else text
        lines += f'<li><span dir="auto">{shown}</span> <span class="faint">{share:.1%}</span></li>'
    text = escape(excerpt(example.text, 300))
    place = f'<span class="faint">Line {example.place.line:,}</span>'
    return f'<li>{place}<p dir="auto">{text}</p><ul>{lines}</ul></li>'
