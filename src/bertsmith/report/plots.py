"""Curves of a run, and clouds of points, as PNG pictures."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from bertsmith.tasks.scores import Calibration

__all__ = ["BLUE", "GREEN", "ORANGE", "PURPLE", "RED", "Curve", "draw", "draw_points", "draw_reliability"]

BLUE, ORANGE, GREEN, RED, PURPLE = "#1f6fb4", "#e07b00", "#2a8a3a", "#b3342d", "#7a4fa3"
_SIZE, _DPI = (6.4, 3.6), 120


@dataclass(frozen=True)
class Curve:
    """One line: a figure of the entries of one kind, over the steps; evaluations are drawn with their points."""

    kind: str
    figure: str
    label: str
    color: str
    marker: str = "o"

    def points(self, entries: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
        """(step, value) of all entries that have it."""
        return [(e["step"], e[self.figure]) for e in entries if e["kind"] == self.kind and self.figure in e]


def draw(title: str, unit: str, curves: Sequence[Curve], entries: Sequence[dict[str, Any]]) -> bytes | None:
    """A picture of several curves; None where the run has none of them."""
    figure, axes = _new(title, "step", unit)
    drawn = False
    for curve in curves:
        points = curve.points(entries)
        if points:
            drawn = True
            marked = curve.kind == "eval"
            style: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.75}
            if marked:
                style = {"marker": curve.marker, "markersize": 4, "linewidth": 1.6}
            axes.plot(*zip(*points, strict=True), label=curve.label, color=curve.color, **style)
    if not drawn:
        return None
    if len(curves) > 1:
        axes.legend(frameon=False)
    return _save(figure)


def draw_points(
    title: str, across: str, up: str, xs: Sequence[float], ys: Sequence[float], *, diagonal: bool = False
) -> bytes:
    """A cloud of points; `diagonal` is the line where both numbers are equal."""
    figure, axes = _new(title, across, up)
    axes.scatter(xs, ys, s=30 if len(xs) < 100 else 12, color=BLUE, alpha=0.6, linewidths=0)
    if diagonal:
        ends = [min(*xs, *ys), max(*xs, *ys)]
        axes.plot(ends, ends, color="#777", linestyle="--", linewidth=1.0, label="equal")
        axes.legend(frameon=False)
    if all(isinstance(x, int) for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _save(figure)


def draw_reliability(calibration: Calibration) -> bytes:
    """How often each confidence is right, beside how often it should be."""
    figure, axes = _new(
        f"Calibration: expected error {calibration.error:.1%}", "mean confidence of a bin", "share that is right"
    )
    bins = [each for each in calibration.bins if each.count]
    width = calibration.bins[0].high - calibration.bins[0].low
    middles = [(each.low + each.high) / 2 for each in bins]
    axes.bar(middles, [each.accuracy for each in bins], 0.94 * width, color=BLUE, alpha=0.3, label="right in the bin")
    axes.plot([0, 1], [0, 1], color="#777", linestyle="--", linewidth=1.0, label="as it should be")
    means, shares = [each.confidence for each in bins], [each.accuracy for each in bins]
    axes.plot(means, shares, color=ORANGE, marker="o", markersize=5, linewidth=1.4, label="at its mean confidence")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, loc="upper left")
    return _save(figure)


def _new(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", parse_math=False)
    axes.set_xlabel(across, parse_math=False)
    axes.set_ylabel(up, parse_math=False)
    axes.grid(alpha=0.25)
    return figure, axes


def _save(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
