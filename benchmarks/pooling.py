"""Ways to make a sentence vector, by how well their cosines tell which sentences mean the same.

Spearman's correlation with the similarity that people gave (STS-B dev), or the area under the ROC curve where a pair
is alike or not (LCQMC dev). Nothing is trained on the task. A whitening is fitted on the texts of the train file,
without labels; "256" keeps the dimensions of the largest variance. And: with mean pooling, MiniLM's vectors must be
those of sentence-transformers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import bertsmith
import harness
from bertsmith.bundle.resolve import find_model
from bertsmith.model.pooling import Whitening
from bertsmith.tasks.scores import spearman
from bertsmith.tasks.texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertsmith.infer.engine import Engine

TOLERANCE = 1e-4
KEPT = 256
STSB, LCQMC = "glue/STS-B", "zh/lcqmc"
WAYS: dict[str, dict[str, Any]] = {
    "mean": {"pool": "mean"},
    "cls": {"pool": "cls"},
    "max": {"pool": "max"},
    "mean of layers -2, -1": {"pool": "mean", "layers": (-2, -1)},
    "last4": {"pool": "last4"},
    "first-last": {"pool": "first-last"},
}


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, and how alike people find them; and texts of the same kind, to fit a whitening on."""

    name: str
    first: list[str]
    second: list[str]
    alike: list[float]
    others: list[str]

    @classmethod
    def read(cls, folder: Path, name: str, rows: int | None) -> Pairs:
        """The dev file, and the texts of the train file."""
        dev, train = (
            list(islice(read_texts(str(folder / name / file), {}, labelled=True), rows))
            for file in ("dev.tsv", "train.tsv")
        )
        seconds = [example.pair or "" for example in dev]
        others = dict.fromkeys(text for example in train for text in (example.text, example.pair or ""))
        return cls(name, [e.text for e in dev], seconds, [float(e.label) for e in dev], list(others))

    def score(self, first: np.ndarray, second: np.ndarray) -> float:
        """In percent, of the cosines."""
        cosines = (scaled(first) * scaled(second)).sum(1)
        if self.name == STSB:
            return 100 * spearman(self.alike, cosines.tolist())
        from sklearn.metrics import roc_auc_score

        return 100 * float(roc_auc_score(self.alike, cosines))


def scaled(vectors: np.ndarray) -> np.ndarray:
    """To length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def scores_of(engine: Engine, pairs: Pairs, way: dict[str, Any]) -> list[float]:
    """Of one way to pool: as it is, whitened, whitened with fewer dimensions."""
    count = len(pairs.first)
    vectors = engine.embed([*pairs.first, *pairs.second, *pairs.others], whiten=False, normalize=False, **way)
    sides, others = (vectors[:count], vectors[count : 2 * count]), torch.from_numpy(vectors[2 * count :])
    found = [pairs.score(*sides)]
    for width in (None, min(KEPT, vectors.shape[1])):
        whitening = Whitening.fit(others, width)
        found.append(pairs.score(*(whitening(torch.from_numpy(side)).numpy() for side in sides)))
    return found


def table(engine: Engine, pairs: Pairs, shown: str) -> list[str]:
    """Rows of the table for one model."""
    rows = []
    for name, way in WAYS.items():
        figures = scores_of(engine, pairs, way)
        rows.append(f"| {shown} | {pairs.name} | {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")
        sys.stderr.write(rows[-1] + "\n")
    return rows


def difference(texts: Sequence[str]) -> float:
    """The largest, in any number of any vector, between ours and sentence-transformers', both scaled to length 1."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(find_model("minilm")[0]), device="cpu", local_files_only=True)
    expected = theirs.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    return float(np.abs(bertsmith.load("minilm").embed(texts, pool="mean", normalize=True) - expected).max())


def main() -> int:
    """Measure, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder with tasks/")
    arguments.add_argument("--mini", type=Path, default=Path("runs/pretrain-en/run/model"), help="a model of our own")
    arguments.add_argument("--rows", type=int, help="so many rows of each file, to try it out")
    options = arguments.parse_args()
    if not (options.data / "tasks").is_dir():
        sys.exit(f"{options.data}: has no tasks/; name the folder with --data")
    if not options.mini.is_dir():
        sys.exit(f"{options.mini}: is not there; make results NAME=pretrain ARGS='--run en' makes it")
    english, chinese = (Pairs.read(options.data / "tasks", name, options.rows) for name in (STSB, LCQMC))
    texts = [*dict.fromkeys([*english.first, *english.second]), " ".join(english.first[:60])]  # the last is cut
    worst = difference(texts)
    rows = table(bertsmith.load("minilm"), english, "minilm")
    rows += table(bertsmith.load(str(options.mini)), english, "mini, pre-trained here")
    rows += table(bertsmith.load("m3e-small"), chinese, "m3e-small")
    sizes = ", ".join(
        f"{pairs.name}: {len(pairs.alike):,} pairs, whitening on {len(pairs.others):,} distinct texts"
        for pairs in (english, chinese)
    )
    what = f"MiniLM, mean: largest difference from sentence-transformers over {len(texts):,} vectors"
    harness.show(
        "pooling",
        "Pooling, with and without whitening",
        [
            (__doc__ or "").strip(),
            "",
            *harness.verdict_table([(what, f"≤ {TOLERANCE:.0e}", f"{worst:.1e}", worst <= TOLERANCE)]),
            "",
            f"{sizes}. STS-B: Spearman × 100; LCQMC: AUC × 100.",
            "",
            "| model | set | pooling | plain | whitened | whitened, 256 |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"Peak of this machine in float32: {harness.describe_peaks([harness.measure_peak()])}. Operations are not "
            "counted: nothing is timed.",
            "",
            harness.versions("sentence-transformers", "scikit-learn"),
        ],
        keep=options.keep,
    )
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
