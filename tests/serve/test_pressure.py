"""The service under pressure, as the benchmarks put it there, in a small form."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import numpy as np

import bertsmith
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.model.heads import build
from figures import read_figures
from finetuning.small_tasks import SHAPE, make_tokenizer
from load_generator import Job, Phase, generate
from rough_clients import KINDS, Target, misbehave
from serve.conftest import command

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.infer.engine import Engine

SENDING = 2.5  # seconds
NUM_EACH = 3  # clients of each kind
TEXTS = [f"{'stone river ' * number}anna" for number in range(1, 21)]


def test_a_storm_is_answered_rightly_or_refused_properly(tmp_path: Path):
    """By a model that is large enough for the storm to be too much on any machine."""
    shape = SHAPE.derive(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536)
    model = Bundle(build(shape, "mlm", seed=5), make_tokenizer(), 64)
    write_bundle(tmp_path / "large", model, source="a test")
    np.save(tmp_path / "right.npy", bertsmith.load(str(tmp_path / "large")).embed(TEXTS, normalize=True))
    bodies = [json.dumps({"input": text}) for text in TEXTS]
    storm, after = Phase("open", 1.5, rate=600.0), Phase("steady", 4.0, rate=10.0)
    with command(tmp_path / "large", "--limit", "wait=0.01") as (_, port):
        job = Job(port, "/v1/embeddings", bodies, str(tmp_path / "right.npy"), "openai", [storm, after])
        found, calm = generate(job)
    assert not found.wrong
    assert len(found.records) > 600
    assert {record.status for record in found.records} == {200, 429}
    assert {record.status for record in sorted(calm.records)[-10:]} == {200}, "three seconds later"


def test_clients_that_misbehave_spoil_nothing(folders: dict[str, Path], small: dict[str, Engine]):
    """With seconds to spare for a client that gets no time on a busy machine: it would be one that is cut off."""
    vectors = small["filler"].embed(TEXTS, normalize=True)
    with command(folders["filler"], "--limit", f"sending={SENDING}") as (_, port):
        target = Target(port, TEXTS, vectors, SENDING)
        tally = asyncio.run(misbehave(target, NUM_EACH * len(KINDS), NUM_EACH * len(KINDS)))
        figures = read_figures(f"http://127.0.0.1:{port}")
    assert figures.queue == 0
    assert figures.with_status("5") == 0
    assert figures.by_route()["/v1/embeddings"]["200"] >= len(tally.seconds)
    assert tally.failures == []
    assert tally.seconds, "the well-behaved client was answered"
    for kind in KINDS:
        assert set(tally.ends[kind.what]) <= set(kind.right), kind.what
        assert sum(tally.ends[kind.what].values()) == NUM_EACH
