"""The shape of a BERT: `BertConfig`, its `config.json`, and the named sizes.

Comes in: keyword values, a `config.json` of Hugging Face, or a `bert_config.json` of Google.
Goes out: a frozen, checked `BertConfig`; the same JSON with the keys we do not know kept.

This module counts parameters by arithmetic, so that asking costs neither torch nor memory.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bertsmith.errors import ConfigError, InputError

__all__ = ["SIZES", "Activation", "BertConfig", "named_size", "one_sentence", "read_json"]

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"]

# Upper limits only keep a hostile file from asking for the impossible; no BERT is near them.
Size = Annotated[int, Field(strict=True, ge=1, le=2**24)]
Depth = Annotated[int, Field(strict=True, ge=1, le=1024)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
# By their numbers: in a file, whose keys are texts, "10" may stand before "2".
LabelNames = Annotated[
    dict[int, str], Field(min_length=1, max_length=2**20), AfterValidator(lambda names: dict(sorted(names.items())))
]

_JSON_LIMIT = 64 * 2**20


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object of bounded size; every way it can fail is an `InputError` that names the file."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file")
        with path.open("rb") as file:
            data = file.read(_JSON_LIMIT + 1)
        if len(data) > _JSON_LIMIT:
            raise InputError(f"{path}: larger than {_JSON_LIMIT} bytes, so not a configuration file")
        content = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def _none_as_empty(value: Any) -> Any:
    return [] if value is None else value


class BertConfig(BaseModel):
    """Everything that fixes a BERT's shape, under the names of Hugging Face's `config.json`.

    Keys that Bertsmith does not know are kept and written back. `BertConfig()` is BERT-base.

    >>> BertConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024).head_size
    64
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Depth = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    classifier_dropout: Rate | None = None
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    initializer_range: float = Field(default=0.02, gt=0.0, lt=10.0)
    layer_norm_eps: float = Field(default=1e-12, gt=0.0, lt=1.0)
    pad_token_id: int | None = 0
    model_type: Literal["bert"] = "bert"
    architectures: Annotated[list[str], BeforeValidator(_none_as_empty)] = Field(default_factory=list)
    id2label: LabelNames = Field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})
    problem_type: str | None = None
    # Variants of the architecture that other software can express and a plain BERT is not.
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True

    @model_validator(mode="before")
    @classmethod
    def _read_label_count(cls, values: Any) -> Any:
        """Turn `num_labels`, which may stand instead of the names, into names."""
        if not isinstance(values, dict) or "num_labels" not in values:
            return values
        values = dict(values)
        count = values.pop("num_labels")
        if not isinstance(count, int) or not 1 <= count <= 2**20:
            raise ValueError(f"num_labels: must be a whole number from 1 to {2**20}, not {count!r}")
        names = values.get("id2label")
        if names is None:
            values["id2label"] = {number: f"LABEL_{number}" for number in range(count)}
        elif isinstance(names, dict) and len(names) != count:
            raise ValueError(f"num_labels: {count}, but id2label names {len(names)} labels")
        return values

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"num_attention_heads: {self.num_attention_heads} heads do not divide hidden_size {self.hidden_size}"
            )
        if sorted(self.id2label) != list(range(len(self.id2label))):
            raise ValueError("id2label: the label numbers must run from 0 without a gap")
        return self

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(one_sentence(error)) from error

    @property
    def head_size(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_labels(self) -> int:
        """How many outputs a classification or tagging head has."""
        return len(self.id2label)

    @property
    def head_dropout(self) -> float:
        """The dropout before a classification head."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    def derive(self, /, **changes: Any) -> BertConfig:
        """A copy with some values changed, checked again (`model_copy` would not check)."""
        return BertConfig(**{**self.model_dump(), **changes})

    def parameter_counts(self) -> dict[str, int]:
        """Parameters per part of the encoder with its pooler, by arithmetic.

        >>> sum(BertConfig().parameter_counts().values())
        109482240
        """
        width, inner = self.hidden_size, self.intermediate_size
        norm = 2 * width
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        attention = 4 * (width * width + width) + norm
        feed_forward = 2 * width * inner + inner + width + norm
        return {
            "embeddings": rows * width + norm,
            "attention": self.num_hidden_layers * attention,
            "feed_forward": self.num_hidden_layers * feed_forward,
            "pooler": width * width + width,
        }

    @classmethod
    def from_file(cls, path: Path) -> BertConfig:
        """Read `config.json` (Hugging Face) or `bert_config.json` (Google)."""
        content = read_json(path)
        content.pop("label2id", None)  # derived from id2label, and written back from it
        try:
            return cls(**content)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def to_json(self) -> str:
        """The text of `config.json`, known and unknown keys alike, in a stable order."""
        content = self.model_dump()
        content["id2label"] = {str(number): name for number, name in sorted(self.id2label.items())}
        content["label2id"] = {name: number for number, name in sorted(self.id2label.items())}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def one_sentence(error: ValidationError) -> str:
    """Say the first thing that is wrong, with its field's name before it.

    Where a field can be one of several kinds there is an error for each; the one that is deepest inside is meant.
    """
    begins = error.errors()[0]["loc"][:1]
    first = max((each for each in error.errors() if each["loc"][:1] == begins), key=lambda each: len(each["loc"]))
    field = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # which names a kind
    message = re.sub(r"^Value error, ", "", first["msg"])
    return f"{field}: {message[0].lower()}{message[1:]}, not {first['input']!r:.80}" if field else message


# Google's sizes; the small ones are from "Well-Read Students Learn Better" (Turc et al., 2019).
SIZES: dict[str, tuple[int, int, int]] = {  # layers, width, heads
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


def named_size(name: str, **changes: Any) -> BertConfig:
    """The configuration of a named size, with some values changed.

    >>> named_size("mini", vocab_size=8000).num_hidden_layers
    4
    """
    if name not in SIZES:
        raise ConfigError(f"size: {name!r} is not one of {', '.join(SIZES)}")
    layers, width, heads = SIZES[name]
    shape = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
    return BertConfig(**{**shape, **changes})
