"""Our parameter names and Hugging Face's. Foreign names live here and nowhere else.

Canonical names are those of today's `BertForPreTraining`: the encoder under `bert.`, LayerNorms with
`weight` and `bias`. Our fused `qkv` is their query, key and value, one below the other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ARCHITECTURES", "canonical_names", "head_of", "hugging_face_names", "kind_of"]

# Which of transformers' classes each kind of model is.
ARCHITECTURES = {
    "encoder": "BertModel",
    "pretraining": "BertForPreTraining",
    "mlm": "BertForMaskedLM",
    "pair": "BertForNextSentencePrediction",
    "classification": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
}

_MODULES = {  # ours to theirs, longest first where one begins like another
    "encoder.embeddings.word": "bert.embeddings.word_embeddings",
    "encoder.embeddings.position": "bert.embeddings.position_embeddings",
    "encoder.embeddings.token_type": "bert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "encoder.pooler": "bert.pooler.dense",
    "mlm.dense": "cls.predictions.transform.dense",
    "mlm.norm": "cls.predictions.transform.LayerNorm",
    "mlm": "cls.predictions",
    "pair": "cls.seq_relationship",
    "classifier": "classifier",
    "span": "qa_outputs",
}
_LAYER_MODULES = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_HEADS = ("cls.predictions.", "cls.seq_relationship.", "classifier.", "qa_outputs.")
_ENCODER_PARTS = ("embeddings.", "encoder.", "pooler.")
# Buffers and the second name of a tied tensor: in some files, in others not, and never needed.
_REDUNDANT = re.compile(r"bert\.embeddings\.(position_ids|token_type_ids)|cls\.predictions\.decoder\.weight")


def hugging_face_names(name: str) -> tuple[str, ...]:
    """Where one of our parameters stands in a Hugging Face file: one name, or three for the fused `qkv`.

    >>> hugging_face_names("encoder.layers.3.up.bias")
    ('bert.encoder.layer.3.intermediate.dense.bias',)
    """
    module, _, leaf = name.rpartition(".")
    layer = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", module)
    if layer is None:
        return (f"{_MODULES[module]}.{leaf}",)
    prefix = f"bert.encoder.layer.{layer[1]}"
    if layer[2] == "attention.qkv":
        return tuple(f"{prefix}.attention.self.{part}.{leaf}" for part in ("query", "key", "value"))
    return (f"{prefix}.{_LAYER_MODULES[layer[2]]}.{leaf}",)


def canonical_names(names: Iterable[str]) -> dict[str, str]:
    """Canonical name to the file's own name, for every tensor that a BERT needs.

    Understands a missing `bert.` prefix, `gamma` and `beta`, and a bias under the decoder's name.

    >>> canonical_names(["embeddings.LayerNorm.gamma", "embeddings.position_ids"])
    {'bert.embeddings.LayerNorm.weight': 'embeddings.LayerNorm.gamma'}
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        canonical = _canonical(name)
        if canonical is None:
            continue
        if canonical in found:
            if canonical == "cls.predictions.bias":  # stored twice by design
                continue
            raise WeightsError(f"{found[canonical]} and {name} are the same tensor")
        found[canonical] = name
    return found


def head_of(name: str) -> str | None:
    """The head that a canonical name belongs to (`cls.predictions.`, …), or None for the encoder's own."""
    return next((head for head in (*_HEADS, "bert.pooler.") if name.startswith(head)), None)


def kind_of(names: Iterable[str], architectures: list[str]) -> str:
    """The kind of model that canonical names add up to; the architecture decides between like heads."""
    heads = {head_of(name) for name in names}
    named = {theirs: kind for kind, theirs in ARCHITECTURES.items()}
    claimed = next((named[name] for name in architectures if name in named), None)
    if "classifier." in heads:
        return claimed if claimed in ("classification", "choice", "tagging") else "classification"
    if "qa_outputs." in heads:
        return "span"
    if "cls.predictions." in heads:
        return "pretraining" if "cls.seq_relationship." in heads else "mlm"
    return "pair" if "cls.seq_relationship." in heads else "encoder"


def _canonical(name: str) -> str | None:
    stem, _, leaf = name.rpartition(".")
    canonical = f"{stem}.{({'gamma': 'weight', 'beta': 'bias'} if stem.endswith('LayerNorm') else {}).get(leaf, leaf)}"
    if canonical.startswith(_ENCODER_PARTS):
        canonical = f"bert.{canonical}"
    if canonical == "cls.predictions.decoder.bias":
        return "cls.predictions.bias"
    return None if _REDUNDANT.fullmatch(canonical) else canonical
