"""Small data sets and models for tests of pre-training, and a run in a process of its own that can be stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.config import BertConfig
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.shards import ShardSet
from bertsmith.model.heads import build
from bertsmith.pretraining.keeping import Observer
from bertsmith.text.corpus import CorpusOptions
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bertsmith.pretraining.planning import RunPlan

# Each word has another that always follows it, so that there is something to learn.
WORDS = [f"{first}{second}" for first in ("ba", "de", "ki", "lo", "mu", "sa", "te", "vo") for second in "rnlpst"]
PIECES = [*SPECIAL_TOKENS, ".", *WORDS, "##ing", "##ed"]

# The shape of a model that takes a step in about a millisecond.
SHAPE = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
# What a run of it is asked for, as `changes` of `make_request`.
SMALL = {"phases": "32:0.75,64:0.25", "batch.tokens": 256, "evaluation.tokens": 1000, "evaluation.every": 10}

# `bertsmith` as people start it, but for two things: the speed of the machine is not measured, and a step takes
# at least so long that a test can stop it in between.
_SLOWLY = """
import sys, time
import torch
from bertsmith.cli.main import run
from bertsmith.train import keeping
from bertsmith.train.loop import Loop
from bertsmith.train.speed import Peak
torch.set_num_threads(1)
keeping.measure_peak = lambda *given, **named: Peak(1e11, "none")
step = Loop.take_step
def slow(*given):
    time.sleep(float(sys.argv[1]))
    return step(*given)
Loop.take_step = slow
sys.exit(run(sys.argv[2:]))
"""


class Watcher(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.plans: list[RunPlan] = []
        self.steps: list[int] = []

    def on_plan(self, plan, request) -> None:
        self.plans.append(plan)

    def on_step(self, values, progress, total) -> None:
        self.steps.append(progress.step)

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def make_documents(count: int = 60, seed: int = 0, sentences: int = 8) -> list[str]:
    """Documents of made-up words, one sentence a line."""
    rng = random.Random(seed)
    documents = []
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(3, sentences)):
            place = rng.randrange(len(WORDS))
            length = rng.randint(4, 12)
            lines.append(" ".join(WORDS[(place + 5 * n) % len(WORDS)] for n in range(length)) + ".")
        documents.append("\n".join(lines))
    return documents


def make_tokenizer(pieces: Sequence[str] = PIECES) -> Tokenizer:
    return Tokenizer.from_pieces(list(pieces))


def build_data(
    folder: Path,
    documents: Sequence[str] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    holdout: float = 0.2,
    **options: object,
) -> Path:
    """A data set in `folder/data`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "corpus.jsonl"
    texts = make_documents() if documents is None else documents
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    build_shards(
        [str(source)],
        tokenizer or make_tokenizer(),
        folder / "data",
        corpus=CorpusOptions(min_chars=1),
        options=ShardOptions(holdout=holdout, sentences="lines", **options),
        workers=1,
    )
    return folder / "data"


def both_splits(folder: Path) -> tuple[ShardSet, ShardSet]:
    return ShardSet(folder), ShardSet(folder, "holdout")


def write_model(folder: Path, kind: str = "pretraining", config: BertConfig = SHAPE, seed: int = 3) -> Path:
    """A model folder with the tokenizer of the small data sets."""
    bundle = Bundle(build(config, kind, seed=seed), make_tokenizer(), config.max_position_embeddings)
    write_bundle(folder, bundle, source="a test")
    return folder


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def start_process(arguments: Sequence[object], *, seconds_per_step: float = 0.0, **options: object) -> subprocess.Popen:
    """`bertsmith` with these arguments, in a process of its own."""
    command = [sys.executable, "-c", _SLOWLY, str(seconds_per_step), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, **{"stderr": subprocess.PIPE, **options})


def wait_for(condition: Callable[[], bool], process: subprocess.Popen, *, seconds: float = 60.0) -> None:
    """Until the condition holds; a process that ends before is an error."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.stderr.read()}"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
