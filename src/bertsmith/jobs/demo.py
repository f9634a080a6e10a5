"""`demo`: what a BERT does, on weights that come with `make setup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bertsmith.infer.engine import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.infer.fill import Candidate

__all__ = ["EMBED_MODEL", "FILL_MODEL", "SENTENCES", "fill_examples", "nearest_sentences"]

FILL_MODEL = "albert-tiny-zh"
EMBED_MODEL = "minilm"

_GAPS = (
    "中国的首都是[MASK]京。",
    "他每天早上都喝一杯咖[MASK]。",
    "春天来了，花都[MASK]了。",
    "这本书很有意[MASK]。",
)
_QUERIES = ("How do I get my money back?", "The train did not come on time.", "Something sweet to bake")
SENTENCES = (
    "You can return any item within thirty days for a full refund.",
    "Our office is closed on public holidays.",
    "The express to the coast was delayed by almost an hour.",
    "Preheat the oven and grease a round cake tin.",
    "Stir the sugar into the butter until it is pale.",
    "The new phone has a brighter screen and a larger battery.",
    "She plays the violin in the city orchestra.",
    "Rain is expected in the north tomorrow.",
    "The committee voted against the proposal.",
    "Passengers waited on the platform with their luggage.",
    "A password must have at least twelve characters.",
    "He repaired the old bicycle in his garage.",
    "The museum shows paintings from the seventeenth century.",
    "Your order has been shipped and will arrive on Friday.",
    "The goalkeeper saved a penalty in the last minute.",
    "Doctors advise drinking more water in summer.",
    "The river flooded the fields after the storm.",
    "To change your address, open the settings page.",
    "The children built a castle of sand.",
    "Interest rates were left unchanged this month.",
)


def fill_examples(top: int = 3) -> Iterator[tuple[str, list[Candidate]]]:
    """Chinese sentences with a gap, and the likeliest characters for it."""
    model = load(FILL_MODEL)
    for text in _GAPS:
        yield text, model.fill(text, top=top)[0]


def nearest_sentences(top: int = 2) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """For each query the nearest of the sentences, by cosine."""
    model = load(EMBED_MODEL)
    cosines = model.embed(_QUERIES, normalize=True) @ model.embed(SENTENCES, normalize=True).T
    for query, row in zip(_QUERIES, cosines, strict=True):
        best = np.argsort(-row)[:top]
        yield query, [(SENTENCES[number], float(row[number])) for number in best]
