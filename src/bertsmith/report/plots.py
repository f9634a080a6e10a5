"""Curves of a run as PNG pictures."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Curve", "draw"]

_SIZE, _DPI = (6.4, 3.6), 120


@dataclass(frozen=True)
class Curve:
    """One line: a figure of the entries of one kind, over the steps; evaluations are drawn with their points."""

    kind: str
    figure: str
    label: str
    color: str


def draw(title: str, unit: str, curves: Sequence[Curve], entries: Sequence[dict[str, Any]]) -> bytes | None:
    """A picture of several curves; None where the run has none of them."""
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = False
    for curve in curves:
        points = [(e["step"], e[curve.figure]) for e in entries if e["kind"] == curve.kind and curve.figure in e]
        if points:
            drawn = True
            marked = curve.kind == "eval"
            style = {"marker": "o", "markersize": 4, "linewidth": 1.6} if marked else {"linewidth": 1.0, "alpha": 0.75}
            axes.plot(*zip(*points, strict=True), label=curve.label, color=curve.color, **style)
    if not drawn:
        return None
    axes.set_title(title, loc="left")
    axes.set_xlabel("step")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.25)
    if len(curves) > 1:
        axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
