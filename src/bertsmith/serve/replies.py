"""What the service answers, as OpenAPI shows it; the routes themselves give plain values."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "AnswerReply",
    "AttentionReply",
    "CandidateReply",
    "ChoiceReply",
    "EmbeddingsReply",
    "GapReply",
    "InfoReply",
    "LabelReply",
    "ModelsReply",
    "PieceReply",
    "RankReply",
    "TagReply",
]


class Reply(BaseModel):
    """An answer has these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingReply(Reply):
    """A vector: its numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class UsageReply(Reply):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(Reply):
    """As OpenAI's clients expect it."""

    object: Literal["list"]
    data: list[EmbeddingReply]
    model: str
    usage: UsageReply


class LabelReply(Reply):
    """A class and its share; or `value` and a number."""

    label: str
    score: float


class RankReply(Reply):
    """A text by its place in the request, and the text itself with `return_text`."""

    index: int
    score: float
    text: str = ""


class PieceReply(Reply):
    """A piece, and its characters; a special token has none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None
    segment: int


class AttentionReply(Reply):
    """`weights` is base64 of little-endian float32, (layers, heads, size, size)."""

    tokens: list[PieceReply]
    layers: int
    heads: int
    size: int
    weights: str


class CandidateReply(Reply):
    """A piece for a gap, and its share; or a piece near a word, and its cosine."""

    token: str
    score: float


class GapReply(Reply):
    """A gap, by its characters, and what may stand there."""

    start: int
    stop: int
    candidates: list[CandidateReply]


class EntityReply(Reply):
    """A stretch of the text."""

    label: str
    text: str
    start: int
    end: int
    score: float


class TagReply(Reply):
    """A tag a word, and the entities that they make."""

    text: str
    tags: list[str]
    entities: list[EntityReply]


class SpanReply(Reply):
    """A stretch of the context that may be the answer."""

    text: str
    start: int
    end: int
    score: float


class AnswerReply(Reply):
    """The best answer, `""` where the text has none; how far no answer is ahead of it; and the next best."""

    answer: str
    score: float | None
    start: int | None
    end: int | None
    null_margin: float
    candidates: list[SpanReply]


class ChoiceReply(Reply):
    """The choice by its place and text, and the shares of all."""

    choice: int
    text: str
    score: float
    scores: list[float]


class ModelReply(Reply):
    """A model, as OpenAI's clients expect it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsReply(Reply):
    """All of them."""

    object: Literal["list"]
    data: list[ModelReply]


class AboutReply(Reply):
    """A model, and what it can do."""

    name: str
    can: list[str]
    kind: str
    task: str | None
    labels: list[str]
    pooling: str
    layers: int
    heads: int
    width: int
    max_length: int
    mask_token: str


class InfoReply(Reply):
    """The first model as text-embeddings-inference has it, and all in `models`."""

    version: str
    model_id: str
    model_sha: str | None
    model_dtype: Literal["float32", "int8"]
    model_type: dict[str, Any]
    max_input_length: int
    max_concurrent_requests: int
    tokenization_workers: int
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    models: list[AboutReply]
