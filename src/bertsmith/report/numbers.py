"""Numbers: what is predicted beside what is right, and the texts that are furthest from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bertsmith.report.classes import MAX_MISTAKES, text_columns
from bertsmith.report.dev import View
from bertsmith.report.page import paragraph, picture, pictures, section, table
from bertsmith.report.plots import draw_points

if TYPE_CHECKING:
    from bertsmith.report.dev import Dev, Valued
    from bertsmith.tasks.texts import TextExample

__all__ = ["show_numbers"]


def show_numbers(dev: Dev[TextExample, Valued]) -> View:
    """All of `regress`."""
    golds = [float(example.label) for example in dev.examples]
    guesses = [prediction.value for prediction in dev.predictions]
    errors = [guess - gold for gold, guess in zip(golds, guesses, strict=True)]
    mean = sum(map(abs, errors)) / len(errors)
    root = math.sqrt(sum(error**2 for error in errors) / len(errors))
    png = draw_points("Gold and predicted", "gold", "predicted", golds, guesses, diagonal=True)
    worst = sorted(range(len(errors)), key=lambda place: -abs(errors[place]))[:MAX_MISTAKES]
    header, texts = text_columns([dev.examples[place] for place in worst])
    rows = [
        [*cells, f"{golds[place]:g}", f"{guesses[place]:.3f}", f"{errors[place]:+.3f}"]
        for cells, place in zip(texts, worst, strict=True)
    ]
    summary = f"Mean absolute error: {mean:.3f}. Root of the mean squared error: {root:.3f}."
    return View(
        [
            section(
                "Gold and predicted",
                paragraph(summary),
                pictures([picture(png, "Predicted numbers over gold ones, a point for each example")]),
            ),
            section(
                "Largest errors",
                paragraph("Lines are those of the file."),
                table([*header, "gold", "predicted", "error"], rows, "Largest errors"),
            ),
        ],
        {"scatter": png},
    )
