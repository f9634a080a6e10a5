"""The report of a pre-training run: from its folder, at any time, also while it is still going on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.config import read_json
from bertsmith.data.index import SPLITS, read_index
from bertsmith.errors import InputError, ShardError
from bertsmith.folders import write_whole
from bertsmith.report.page import page, picture, section, table
from bertsmith.report.plots import Curve, draw
from bertsmith.train.metrics import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["write_report"]

_BLUE, _ORANGE, _GREEN, _RED = "#1f6fb4", "#e07b00", "#2a8a3a", "#b3342d"
_PLOTS = {
    "loss-words": (
        "Masked words: loss",
        "nats a word",
        [Curve("train", "mlm_loss", "train", _BLUE), Curve("eval", "mlm_loss", "held out", _ORANGE)],
    ),
    "loss-pairs": (
        "Sentence pairs: loss",
        "nats a pair",
        [Curve("train", "pair_loss", "train", _BLUE), Curve("eval", "pair_loss", "held out", _ORANGE)],
    ),
    "accuracy": (
        "Accuracy, held out",
        "share",
        [Curve("eval", "mlm_accuracy", "masked words", _GREEN), Curve("eval", "pair_accuracy", "pairs", _RED)],
    ),
    "rate": ("Learning rate", "rate", [Curve("train", "rate", "rate", _BLUE)]),
    "speed": ("Speed", "tokens a second", [Curve("train", "tokens_per_second", "tokens a second", _BLUE)]),
    "norm": ("Gradient norm, before clipping", "norm", [Curve("train", "norm", "norm", _BLUE)]),
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
    log = run / "metrics.jsonl"
    if not log.is_file():
        raise InputError(f"{run}: no run here; expected {log.name}")
    entries = _read_entries(log)
    config = read_json(run / "config.json")
    pictures = {name: draw(*spec, entries) for name, spec in _PLOTS.items()}
    (run / "plots").mkdir(exist_ok=True)
    shown = []
    for name, png in pictures.items():
        if png is not None:
            write_whole(run / "plots" / f"{name}.png", lambda file, png=png: file.write(png))  # type: ignore[misc]
            shown.append(picture(png, _PLOTS[name][0]))
    sections = [
        section("Curves", '<div class="pictures">', *shown, "</div>"),
        section("Held-out text", table(["figure", "first", "best", "last"], list(_figures(entries)))),
        section("Gaps, as the run went on", _fills(entries)),
        section("Data", _data(Path(str(config.get("shards", ""))))),
        section("Settings", table(["setting", "value"], list(_flat(config)))),
    ]
    notes = [[f"{entry['step']:,}", str(entry["text"])] for entry in entries if entry["kind"] == "note"]
    if notes:
        sections.insert(0, section("Remarks", table(["step", "remark"], notes)))
    text = page(f"Pre-training: {run.resolve().name}", _lead(config, entries), sections)
    write_whole(run / "report.html", lambda file: file.write(text.encode()))
    return run / "report.html"


def _read_entries(log: Path) -> list[dict[str, Any]]:
    try:
        entries = list(read_log(log))
        steps = [entry["step"] for entry in entries if entry["kind"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{log}: is not the log of a run, or is damaged ({error})") from error
    if not all(isinstance(step, int) for step in steps):
        raise InputError(f"{log}: is not the log of a run, or is damaged")
    return entries


def _lead(config: Mapping[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    done = max((entry["step"] for entry in entries), default=0)
    last: dict[str, Any] = next((entry for entry in reversed(entries) if entry["kind"] == "train"), {})
    what = config.get("size") or f"from {config.get('start')}"
    return (
        f"{what}, recipe {config.get('recipe')}; {done:,} of {config.get('total') or 0:,} steps, "
        f"{last.get('tokens', 0):,} tokens in {last.get('seconds', 0.0) / 60:.1f} minutes of training"
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


def _fills(entries: Sequence[dict[str, Any]]) -> str:
    """A row for each gap, a column for some of the evaluations."""
    found = [entry for entry in entries if entry["kind"] == "fill"]
    steps = sorted({entry["step"] for entry in found})
    if not steps:
        return "<p>None.</p>"
    last = len(steps) - 1
    chosen = sorted({steps[round(number * last / (_FILL_COLUMNS - 1))] for number in range(_FILL_COLUMNS)})
    candidates = {(entry["text"], entry["step"]): entry["candidates"] for entry in found}
    answers = {entry["text"]: entry["answer"] for entry in found}
    rows = [
        [text, answer, *(", ".join(f"{piece} {score:.0%}" for piece, score in candidates.get((text, step), []))
                         for step in chosen)]
        for text, answer in answers.items()
    ]  # fmt: skip
    return table(["text", "stood there", *(f"step {step:,}" for step in chosen)], rows)


def _data(folder: Path) -> str:
    try:
        index = read_index(folder)
    except ShardError as error:
        return table(["data set"], [[str(error)]])
    rows = [
        [
            split,
            *(f"{index.count(split, what):,}" for what in ("documents", "sentences", "tokens")),
            f"{index.count(split, 'unknown') / max(index.count(split, 'tokens'), 1):.2%}",
        ]
        for split in SPLITS
    ]
    return (
        f"{table(['split', 'documents', 'sentences', 'tokens', '[UNK]'], rows)}<p>Vocabulary: {index.vocab_size:,}</p>"
    )


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[list[str]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield [f"{prefix}{name}", _phases(value) if name == "phases" else str(value)]


def _phases(phases: Sequence[Mapping[str, Any]]) -> str:
    """As they are written on the command line."""
    return ",".join(":".join(str(value) for value in phase.values() if value is not None) for phase in phases)
