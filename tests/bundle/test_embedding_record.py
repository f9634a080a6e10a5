"""What a folder says of its sentence vectors: written, read back, and refused where it cannot be."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.bundle.folder import Bundle, read_bundle, write_bundle
from bertsmith.errors import ConfigError, InputError, WeightsError
from bertsmith.infer.engine import load
from bertsmith.jobs.convert import convert
from bertsmith.jobs.embed import whiten
from bertsmith.model.pooling import Pooling, Whitening
from finetuning.small_tasks import SHAPE, make_tokenizer, write_lines
from infer.task_models import write_task
from twins import random_model

WIDTH = SHAPE.hidden_size


def write(folder, pooling=None, whitening=None):
    model = random_model("encoder", SHAPE)
    bundle = Bundle(model, make_tokenizer(), 64, pooling=pooling, whitening=whitening)
    write_bundle(folder, bundle, source="a test")
    return folder


def a_whitening(width=WIDTH, kept=7):
    generator = torch.Generator().manual_seed(0)
    return Whitening(torch.randn(width, generator=generator), torch.randn(width, kept, generator=generator))


@pytest.mark.parametrize(
    "pooling",
    [
        Pooling(),
        Pooling(pool="cls", normalize=True),
        Pooling(pool="max", layers=(0, -1)),
        Pooling(pool="last4"),
        Pooling(pool="first-last", normalize=True),
    ],
)
def test_pooling_comes_back(tmp_path, pooling):
    found = read_bundle(write(tmp_path / "m", pooling))
    assert found.pooling == pooling
    assert found.whitening is None
    assert found.task is None
    assert json.loads((tmp_path / "m/bertsmith.json").read_text()) == {"embedding": pooling.model_dump(mode="json")}


def test_whitening_comes_back_bit_by_bit_and_once_more(tmp_path):
    whitening = a_whitening()
    first = read_bundle(write(tmp_path / "m", Pooling(pool="cls"), whitening))
    write_bundle(tmp_path / "again", first, source="a test")
    for found in (first, read_bundle(tmp_path / "again")):
        assert torch.equal(found.whitening.mean, whitening.mean)
        assert torch.equal(found.whitening.kernel, whitening.kernel)
        assert found.extras == {}


def test_a_folder_that_says_nothing(tmp_path):
    found = read_bundle(write(tmp_path / "m"))
    assert (found.pooling, found.whitening, found.extras) == (None, None, {})
    assert not (tmp_path / "m/bertsmith.json").exists()
    assert not (tmp_path / "m/bertsmith.safetensors").exists()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"pool": "sum"}, "pool"),
        ({"pool": "mean", "scale": 2}, "scale"),
        ({"pool": "last4", "layers": [1]}, "last4 has its own"),
        ({"layers": "1"}, "layers"),
        ({"normalize": "perhaps"}, "normalize"),
        (5, "embedding"),
        (["mean"], "embedding"),
    ],
)
def test_a_record_that_cannot_be_is_named(tmp_path, record, said):
    write(tmp_path / "m", Pooling())
    (tmp_path / "m/bertsmith.json").write_text(json.dumps({"embedding": record}))
    with pytest.raises(ConfigError, match=r"bertsmith\.json: embedding: ") as found:
        read_bundle(tmp_path / "m")
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"whitening.mean": torch.zeros(WIDTH)}, "holds no whole whitening"),
        ({"whitening.kernel": torch.zeros(WIDTH, 3)}, "holds no whole whitening"),
        ({"whitening.mean": torch.zeros(WIDTH), "whitening.kernel": torch.zeros(WIDTH + 1, 3)}, "do not fit together"),
        ({"whitening.mean": torch.zeros(WIDTH), "whitening.kernel": torch.zeros(WIDTH)}, "do not fit together"),
        ({"whitening.mean": torch.zeros(WIDTH), "whitening.kernel": torch.zeros(WIDTH, 0)}, "do not fit together"),
        (
            {"whitening.mean": torch.zeros(WIDTH).long(), "whitening.kernel": torch.zeros(WIDTH, 3).long()},
            "not float32",
        ),
    ],
)
def test_a_broken_whitening_is_named(tmp_path, tensors, said):
    write(tmp_path / "m", Pooling(), a_whitening())
    save_file(tensors, tmp_path / "m/bertsmith.safetensors")
    with pytest.raises(WeightsError, match=said):
        read_bundle(tmp_path / "m")


def test_a_whitening_for_another_model_is_refused_when_vectors_are_wanted(tmp_path):
    write(tmp_path / "m", Pooling(), a_whitening(width=WIDTH + 1))
    engine = load(str(tmp_path / "m"))
    with pytest.raises(InputError, match="the whitening is of vectors of 17 numbers, the model's have 16"):
        engine.embed(["a"])
    assert engine.embed(["a"], whiten=False).shape == (1, WIDTH)


def test_whitening_a_classifier_keeps_its_task_and_the_weights_beside_its_head(tmp_path):
    """The attention that joins segments has a place in no other file."""
    segments = {"mode": "segments", "pool": "attention"}
    write_task(tmp_path / "m", "classify", max_length=8, long=segments)
    before = load(str(tmp_path / "m"))
    names = set(load_file(tmp_path / "m/bertsmith.safetensors"))
    texts = write_lines(tmp_path / "texts.txt", [f"the river {n} was {n % 7}" for n in range(40)])
    whiten(str(tmp_path / "m"), input=str(texts), output=tmp_path / "white", pool="cls", dimensions=5)
    assert set(load_file(tmp_path / "white/bertsmith.safetensors")) == names | {"whitening.mean", "whitening.kernel"}
    after = load(str(tmp_path / "white"))
    long = ["the river was good and the stone was bad, but winter is fine"]
    assert after.classify(long) == before.classify(long)
    assert after.embed(long).shape == (1, 5)
    convert(str(tmp_path / "white"), tmp_path / "copy")
    copy = load(str(tmp_path / "copy"))
    assert copy.classify(long) == before.classify(long)
    assert (copy.embed(long) == after.embed(long)).all()
