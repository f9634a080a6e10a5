"""The report of a pre-training run: from its folder, at any time, also while it is still going on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.config import read_json
from bertsmith.data.index import SPLITS, read_index
from bertsmith.errors import ShardError
from bertsmith.report.page import Html, paragraph, section, table
from bertsmith.report.plots import BLUE, GREEN, ORANGE, RED, Curve
from bertsmith.report.runs import (
    TRAINING_PLOTS,
    read_entries,
    show_curves,
    show_remarks,
    show_settings,
    training_done,
    write_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bertsmith.report.runs import Plot

__all__ = ["write_report"]

_PLOTS: dict[str, Plot] = {
    "loss-words": (
        "Masked words: loss",
        "nats a word",
        [Curve("train", "mlm_loss", "train", BLUE), Curve("eval", "mlm_loss", "held out", ORANGE)],
    ),
    "loss-pairs": (
        "Sentence pairs: loss",
        "nats a pair",
        [Curve("train", "pair_loss", "train", BLUE), Curve("eval", "pair_loss", "held out", ORANGE)],
    ),
    "accuracy": (
        "Accuracy, held out",
        "share",
        [Curve("eval", "mlm_accuracy", "masked words", GREEN), Curve("eval", "pair_accuracy", "pairs", RED)],
    ),
    **TRAINING_PLOTS,
}
_NAMES = {
    "mlm_loss": "masked words, loss",
    "perplexity": "masked words, perplexity",
    "mlm_accuracy": "masked words, accuracy",
    "pair_loss": "pairs, loss",
    "pair_accuracy": "pairs, accuracy",
}
_FILL_COLUMNS = 5


def write_report(run: Path) -> Path:
    """Write `report.html`, and its pictures as PNG into `plots/`; gives the page's path."""
    entries = read_entries(run)
    config = read_json(run / "config.json")
    figures = table(["figure", "first", "best", "last"], list(_figures(entries)), "Scores on held-out text")
    sections = [
        *show_remarks(entries),
        show_curves(run, _PLOTS, entries),
        section("Held-out text", figures),
        section("Gaps, as the run went on", _fills(entries)),
        section("Data", _data(Path(str(config.get("shards", ""))))),
        show_settings(config),
    ]
    return write_page(run, f"Pre-training: {run.resolve().name}", _lead(config, entries), sections)


def _lead(config: Mapping[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    steps, tokens, minutes = training_done(entries)
    what = config.get("size") or f"from {config.get('start')}"
    return (
        f"{what}, recipe {config.get('recipe')}; {steps:,} of {config.get('total') or 0:,} steps, "
        f"{tokens:,} tokens in {minutes:.1f} minutes of training"
    )


def _figures(entries: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    evaluations = [entry for entry in entries if entry["kind"] == "eval"]
    for name, label in _NAMES.items():
        values = [entry[name] for entry in evaluations if name in entry]
        if values:
            best = max(values) if name.endswith("accuracy") else min(values)
            yield [label, *(_number(name, value) for value in (values[0], best, values[-1]))]


def _number(name: str, value: float) -> str:
    if name.endswith("accuracy"):
        return f"{100 * value:.1f}%"
    return f"{value:,.1f}" if name == "perplexity" else f"{value:,.3f}"


def _fills(entries: Sequence[dict[str, Any]]) -> Html:
    """A row for each gap, a column for some of the evaluations."""
    found = [entry for entry in entries if entry["kind"] == "fill"]
    steps = sorted({entry["step"] for entry in found})
    if not steps:
        return paragraph("None.")
    last = len(steps) - 1
    chosen = sorted({steps[round(number * last / (_FILL_COLUMNS - 1))] for number in range(_FILL_COLUMNS)})
    candidates = {(entry["text"], entry["step"]): entry["candidates"] for entry in found}
    answers = {entry["text"]: entry["answer"] for entry in found}
    rows = [
        [text, answer, *(", ".join(f"{piece} {score:.0%}" for piece, score in candidates.get((text, step), []))
                         for step in chosen)]
        for text, answer in answers.items()
    ]  # fmt: skip
    return table(["text", "stood there", *(f"step {step:,}" for step in chosen)], rows, "Gaps")


def _data(folder: Path) -> Html:
    try:
        index = read_index(folder)
    except ShardError as error:
        return paragraph(str(error))
    rows = [
        [
            split,
            *(f"{index.count(split, what):,}" for what in ("documents", "sentences", "tokens")),
            f"{index.count(split, 'unknown') / max(index.count(split, 'tokens'), 1):.2%}",
        ]
        for split in SPLITS
    ]
    counts = table(["split", "documents", "sentences", "tokens", "[UNK]"], rows, "Size of the data set")
    return Html(counts + paragraph(f"Vocabulary: {index.vocab_size:,}"))
