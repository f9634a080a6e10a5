"""The bodies of requests, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

__all__ = [
    "MOST",
    "AnswerBody",
    "AttentionBody",
    "ChooseBody",
    "EmbedBody",
    "EmbeddingsBody",
    "FillBody",
    "NeighboursBody",
    "PredictBody",
    "RerankBody",
    "SimilarityBody",
    "TagBody",
    "TokenizeBody",
]


def _whole(value: Any) -> Any:
    """JSON does not tell 5.0 from 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Lists fail at the first thing that is wrong: a million errors, one a number, would take minutes and gigabytes.
Text = Annotated[str, Field(max_length=2**30)]  # no bound, the body has one; but half a character is refused
Pieces = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2, fail_fast=True)]
Inputs = Text | Texts | Pieces | Annotated[list[Pieces], Field(min_length=1, fail_fast=True)]
MOST = 100  # candidates of one gap, answer or word
TopK = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(_whole)]
Right = Literal["Right", "right"]  # the side that is cut; text-embeddings-inference can cut the other too
Dimensions = Annotated[int, Field(ge=1), BeforeValidator(_whole)]

_MOST_FIELDS = 100  # of which each may be an error; beyond that there is one error for all


class Fields(BaseModel):
    """What may be sent; an unknown field is an error that names it, and so is "5" for 5, or true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, content: Any) -> Any:
        if isinstance(content, dict) and len(content) > _MOST_FIELDS:
            raise ValueError(f"{len(content):,} fields; there are {len(cls.model_fields)}")
        return content


class Body(Fields):
    """A request. `model` is one of those loaded; the first that can."""

    model: str | None = None


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class EmbeddingsBody(BaseModel):
    """As OpenAI's clients send it: texts, or their pieces as numbers; other fields of theirs are not looked at."""

    model_config = ConfigDict(
        extra="ignore", strict=True, json_schema_extra={"examples": [{"input": ["A cat sleeps.", "Shares fell."]}]}
    )
    input: Inputs
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Dimensions | None = None
    user: str | None = None


class EmbedBody(Body):
    """As text-embeddings-inference has it. A text that is too long is cut, or refused with `truncate: false`."""

    model_config = _example(inputs=["A cat sleeps.", "Shares fell."], normalize=True)
    inputs: Inputs
    normalize: bool = True
    truncate: bool | None = True
    truncation_direction: Right = "Right"
    prompt_name: None = None
    dimensions: Dimensions | None = None


class PredictParameters(Fields):
    """What Hugging Face's client can be told besides."""

    top_k: TopK | None = None
    function_to_apply: None = None


class PredictBody(Body):
    """A text, a pair, or a list of lists of one text or two. What is too long is cut, but with `truncate: false`."""

    model_config = _example(inputs=[["a charming and often affecting journey"], ["a mess"]])
    inputs: Text | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1, fail_fast=True)]
    parameters: PredictParameters | None = None
    raw_scores: bool = False
    truncate: bool | None = True
    truncation_direction: Right = "Right"


class RerankBody(Body):
    """Texts by how well they fit a query."""

    model_config = _example(query="Who likes fish?", texts=["Cats do.", "Shares fell."])
    query: Text
    texts: Texts
    return_text: bool = False
    raw_scores: bool = False
    truncate: bool | None = True
    truncation_direction: Right = "Right"


class Sentences(Fields):
    """One against others; or, without a source, each against each."""

    source_sentence: Text | None = None
    sentences: Texts


class SimilarityParameters(Fields):
    """What text-embeddings-inference can be told besides."""

    truncate: bool | None = None
    truncation_direction: Right | None = None
    prompt_name: None = None


class SimilarityBody(Body):
    """Cosines of sentence vectors."""

    model_config = _example(inputs={"source_sentence": "A cat sleeps.", "sentences": ["Cats nap.", "Shares fell."]})
    inputs: Sentences
    parameters: SimilarityParameters | None = None


class TokenizeBody(Body):
    """How texts become pieces; `pair` is a second text, where there is a single first one."""

    model_config = _example(inputs="How a text becomes pieces.")
    inputs: Text | Texts
    add_special_tokens: bool = True
    pair: Text | None = None

    @field_validator("pair")
    @classmethod
    def _one_pair(cls, pair: str | None, info: ValidationInfo) -> str | None:
        alone = isinstance(info.data.get("inputs", ""), str) and info.data.get("add_special_tokens", True)
        if pair is not None and not alone:
            raise ValueError("goes with a single text, and with its special tokens")
        return pair


class AttentionBody(Body):
    """What every head looks at."""

    model_config = _example(inputs="The cat sat on the mat because it was tired.")
    inputs: Text
    pair: Text | None = None


class FillBody(Body):
    """Texts with gaps."""

    model_config = _example(inputs="The cat [MASK] on the mat.", top_k=3)
    inputs: Text | Texts
    top_k: TopK = 5


class NeighboursBody(Body):
    """Words, of which each may be several pieces."""

    model_config = _example(inputs="a", top_k=3)
    inputs: Text | Texts
    top_k: TopK = 10


class TagBody(Body):
    """Texts with entities."""

    model_config = _example(inputs="Marie Curie lived in Paris.")
    inputs: Text | Texts


class AnswerBody(Body):
    """A question and the text that may answer it, of any length."""

    model_config = _example(question="Where did she live?", context="Marie Curie lived in Paris.")
    question: Text
    context: Text
    top_k: TopK = 5


class ChooseBody(Body):
    """A text, and what may go with it."""

    model_config = _example(text="She opened the door", choices=["and went in.", "and it was Tuesday."])
    text: Text
    choices: Annotated[list[Text], Field(min_length=2, max_length=100, fail_fast=True)]
