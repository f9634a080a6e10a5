"""Google's names: a plain BERT becomes Hugging Face's, turned where it must be; anything else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bertsmith.bundle.google import GoogleCheckpoint
from bertsmith.bundle.google_names import (
    GoogleWeights,
    hugging_face_name,
    is_transposed,
    names_without_place,
)
from bertsmith.errors import WeightsError
from bundle.google_writer import INNER, LAYERS, POSITIONS, VOCABULARY, WIDTH, plain_bert, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def google_weights(prefix: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> GoogleWeights:
    write_checkpoint(prefix, arrays)
    return GoogleWeights(GoogleCheckpoint(prefix))


@pytest.mark.parametrize(
    ("google", "hugging_face"),
    [
        ("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight"),
        ("bert/embeddings/LayerNorm/beta", "bert.embeddings.LayerNorm.bias"),
        (
            "bert/encoder/layer_11/attention/self/value/kernel",
            "bert.encoder.layer.11.attention.self.value.weight",
        ),
        ("bert/encoder/layer_0/output/LayerNorm/gamma", "bert.encoder.layer.0.output.LayerNorm.weight"),
        ("bert/pooler/dense/kernel", "bert.pooler.dense.weight"),
        ("cls/predictions/transform/dense/bias", "cls.predictions.transform.dense.bias"),
        ("cls/predictions/output_bias", "cls.predictions.bias"),
        ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight"),
        ("output_weights", "classifier.weight"),
        ("cls/squad/output_bias", "qa_outputs.bias"),
        ("global_step", None),
        ("bert/pooler/dense/kernel/adam_v", None),
        ("bert/embeddings/word_embeddings_2", None),
        ("bert/encoder/layer_00/output/dense/bias", None),
        ("bert/encoder/layer_٣/output/dense/bias", None),
    ],
)
def test_names(google: str, hugging_face: str | None) -> None:
    assert hugging_face_name(google) == hugging_face


def test_names_without_place() -> None:
    state = ["global_step", "beta1_power", "bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/bias/Adam_1"]
    assert names_without_place([*plain_bert(), *state]) == []
    assert names_without_place(["bert/x", "adam_m", "output_weights"]) == ["bert/x", "adam_m"]


def test_a_plain_bert_fits_hugging_faces_model(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    weights = google_weights(tmp_path / "c", plain_bert())
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
    )
    model = transformers.BertForPreTraining(config)
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    expected = {name: tuple(value.shape) for name, value in model.named_parameters() if name not in tied}
    assert {name: info.shape for name, info in weights.tensors.items()} == expected


@pytest.mark.filterwarnings("error")
def test_kernels_are_turned_and_nothing_else(tmp_path: Path) -> None:
    arrays = plain_bert()
    weights = google_weights(tmp_path / "c", arrays)
    for google, array in arrays.items():
        name = hugging_face_name(google)
        assert name is not None
        tensor = weights.read(name)
        assert np.array_equal(tensor.numpy(), array.T if "kernel" in google else array)
        assert is_transposed(google) == ("kernel" in google)
        assert tensor.is_contiguous()
        assert tuple(tensor.shape) == weights.tensors[name].shape
    with pytest.raises(WeightsError, match="has no tensor nothing"):
        weights.read("nothing")


def test_optimizer_state_is_left_out(tmp_path: Path) -> None:
    arrays = plain_bert()
    slots = {f"{name}/{slot}": array for name, array in arrays.items() for slot in ("adam_m", "adam_v")}
    weights = google_weights(tmp_path / "c", arrays | slots | {"global_step": np.array(7, np.int64)})
    assert len(weights.tensors) == len(arrays)


def test_float64_becomes_float32(tmp_path: Path) -> None:
    arrays = {name: array.astype(np.float64) for name, array in plain_bert().items()}
    weights = google_weights(tmp_path / "c", arrays)
    assert {info.dtype for info in weights.tensors.values()} == {"float32"}
    assert {weights.read(name).dtype for name in weights.tensors} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "shape", "what"),
    [
        (
            "bert/embeddings/word_embeddings_2",
            (3, 4),
            "not a plain BERT: there is no place for bert/embeddings/word_embeddings_2 (3, 4)",
        ),
        ("bert/embeddings/word_embeddings", (7, 3), "a factorised embedding, 3 wide before layers"),
        ("bert/pooler/dense/kernel", (4, 2, 2), "unlike bert/pooler/dense/kernel (4, 2, 2)"),
    ],
)
def test_other_models_are_refused_plainly(tmp_path: Path, name: str, shape: tuple[int, ...], what: str) -> None:
    with pytest.raises(WeightsError) as caught:
        google_weights(tmp_path / "c", plain_bert() | {name: np.zeros(shape, np.float32)})
    assert what in str(caught.value)
