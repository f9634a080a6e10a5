"""Google's names for the parts of a BERT in, Hugging Face's names and torch's orientation out.

`GoogleWeights` presents a `GoogleCheckpoint` as if Hugging Face had written it. Optimizer state is left
out; a variable that a plain BERT has no place for is refused, because leaving it out would give another
model. Google's dense kernels are (inputs, outputs), where torch's weights are (outputs, inputs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from bertsmith.bundle.weights import TensorInfo
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bertsmith.bundle.google import GoogleCheckpoint

__all__ = ["GoogleWeights", "hugging_face_name", "is_transposed", "names_without_place"]

_LAYER = r"bert/encoder/layer_(?:0|[1-9][0-9]{0,3})"
_DENSE = (
    rf"(?:{_LAYER}/attention/self/(?:query|key|value)"
    rf"|{_LAYER}/(?:attention/output|intermediate|output)/dense"
    r"|bert/pooler/dense|cls/predictions/transform/dense)/(?:kernel|bias)"
)
_NORM = (
    rf"(?:bert/embeddings|{_LAYER}/(?:attention/output|output)|cls/predictions/transform)"
    r"/LayerNorm/(?:gamma|beta)"
)
_MODULE_VARIABLE = re.compile(rf"{_DENSE}|{_NORM}")
_OPTIMIZER_STATE = re.compile(r"global_step|beta[12]_power|.+/(?:adam_m|adam_v|Adam|Adam_1)")

_RENAMED = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_SINGLE_VARIABLES = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    # The heads of Google's two fine-tuning programs, for sentences and for question answering.
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}

_MAX_LISTED = 4


def hugging_face_name(google_name: str) -> str | None:
    """Where a variable goes; None for optimizer state, and for what a plain BERT has no place for.

    >>> hugging_face_name("bert/encoder/layer_0/attention/output/LayerNorm/gamma")
    'bert.encoder.layer.0.attention.output.LayerNorm.weight'
    """
    if google_name in _SINGLE_VARIABLES:
        return _SINGLE_VARIABLES[google_name]
    if not _MODULE_VARIABLE.fullmatch(google_name):
        return None
    module, _, variable = google_name.rpartition("/")
    return f"{module}/{_RENAMED[variable]}".replace("/layer_", "/layer/").replace("/", ".")


def is_transposed(google_name: str) -> bool:
    """Whether a variable must be turned for torch: the kernels, and not the heads' `output_weights`."""
    return google_name.endswith("/kernel")


def names_without_place(google_names: Iterable[str]) -> list[str]:
    """The variables that are neither part of a plain BERT nor an optimizer's state.

    >>> names_without_place(["bert/pooler/dense/bias", "bert/pooler/dense/bias/adam_m", "bert/extra"])
    ['bert/extra']
    """
    return [name for name in google_names if hugging_face_name(name) is None and not _OPTIMIZER_STATE.fullmatch(name)]


class GoogleWeights:
    """A Google checkpoint under Hugging Face's names, in torch's orientation, float64 as float32."""

    def __init__(self, checkpoint: GoogleCheckpoint) -> None:
        self._checkpoint = checkpoint
        _check_plain(checkpoint)
        places = {name: hugging_face_name(name) for name in checkpoint.tensors}
        self._google_names = {place: name for name, place in places.items() if place is not None}
        self._tensors = {place: _turned(name, checkpoint.tensors[name]) for place, name in self._google_names.items()}

    @property
    def path(self) -> Path:
        """The file to name in an error."""
        return self._checkpoint.path

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the model, by Hugging Face's name, as `read` gives it."""
        return self._tensors

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory."""
        if name not in self._google_names:
            raise WeightsError(f"{self.path}: has no tensor {name}")
        google_name = self._google_names[name]
        tensor = self._checkpoint.read(google_name)
        if tensor.dtype == torch.float64:
            tensor = tensor.float()
        return tensor.T.contiguous() if is_transposed(google_name) else tensor


def _turned(google_name: str, info: TensorInfo) -> TensorInfo:
    """What `GoogleWeights.read` makes of a variable."""
    shape = info.shape[::-1] if is_transposed(google_name) else info.shape
    return TensorInfo(shape, "float32" if info.dtype == "float64" else info.dtype)


def _check_plain(checkpoint: GoogleCheckpoint) -> None:
    """Say all that sets this checkpoint apart from a plain BERT."""
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    unplaced = names_without_place(shapes)
    misshapen = [
        name for name, shape in shapes.items() if hugging_face_name(name) and is_transposed(name) and len(shape) != 2
    ]
    reasons = []
    if unplaced:
        reasons.append(f"there is no place for {_list_variables(unplaced, shapes)}")
    if misshapen:
        reasons.append(f"a kernel has two dimensions, unlike {_list_variables(misshapen, shapes)}")
    reasons += _factorised(shapes)
    if reasons:
        raise WeightsError(f"{checkpoint.path}: not a plain BERT: {'; '.join(reasons)}")


def _list_variables(names: list[str], shapes: Mapping[str, tuple[int, ...]]) -> str:
    listed = [f"{name} {shapes[name]}" for name in names[:_MAX_LISTED]]
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")


def _factorised(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Word embeddings that are narrower than the layers, as in ALBERT."""
    words = shapes.get("bert/embeddings/word_embeddings", ())
    query = shapes.get("bert/encoder/layer_0/attention/self/query/kernel", ())
    if len(words) != 2 or len(query) != 2 or words[1] == query[0]:
        return []
    return [f"a factorised embedding, {words[1]} wide before layers that are {query[0]} wide"]
