"""The routes: a body to a program's inputs, through the batcher, and its results to an answer."""

from __future__ import annotations

import base64
import math
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import numpy as np
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from bertsmith.serve.answers import FieldError, TooLargeError
from bertsmith.serve.bodies import (
    AnswerBody,
    AttentionBody,
    ChooseBody,
    EmbedBody,
    EmbeddingsBody,
    FillBody,
    NeighboursBody,
    PredictBody,
    RerankBody,
    SimilarityBody,
    TagBody,
    TokenizeBody,
)
from bertsmith.serve.replies import (
    AnswerReply,
    AttentionReply,
    CandidateReply,
    ChoiceReply,
    EmbeddingsReply,
    GapReply,
    InfoReply,
    LabelReply,
    ModelsReply,
    PieceReply,
    RankReply,
    TagReply,
)
from bertsmith.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from bertsmith.infer.programs import TextLike
    from bertsmith.serve.served import Served
    from bertsmith.tasks.task import Prediction
    from bertsmith.vocab.tokenizer import Encoding

__all__ = ["QUEUED", "routes"]

Work = TypeVar("Work", bound="Callable[[Service, Any], Awaitable[Any]]")
Sent = TypeVar("Sent", bound=BaseModel)

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "field": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "field"],
        }
    },
    "required": ["error"],
}
_STATUSES = {
    401: "A bearer token is needed",
    404: "No such model, or none that can do this",
    408: "The body did not come in time",
    413: "Too large, too many or too long",
    422: "The body is not JSON, or a field is wrong",
    429: "Busy: try again after `Retry-After` seconds",
    503: "No answer in time, or shutting down",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in _STATUSES.items()
}

routes = APIRouter()


def asks(path: str, summary: str, gives: Any = None, *, in_schema: bool = True) -> Callable[[Work], Work]:
    """Make a route of a function of the service and a body: whoever leaves, or waits too long, is seen to.

    `gives` is the type of its answer, which OpenAPI shows; nothing is converted to it.
    """

    def register(work: Work) -> Work:
        async def endpoint(body: Any, request: Request) -> Response:
            service: Service = request.app.state.service
            return await service.answer(request, work(service, body))

        endpoint.__annotations__ = {"body": get_type_hints(work)["body"], "request": Request}
        endpoint.__name__, endpoint.__doc__ = work.__name__, work.__doc__
        routes.post(path, summary=summary, responses=_ERRORS, response_model=gives, include_in_schema=in_schema)(
            endpoint
        )
        return work

    return register


@asks("/v1/embeddings", "Vectors, as OpenAI's clients ask for them", EmbeddingsReply)
async def embeddings(service: Service, body: EmbeddingsBody) -> Any:
    """All are of length 1; `dimensions` keeps the first ones."""
    served = service.models.find("embed", body.model)
    vectors, count = await service.ask_and_count(served.embedder(True), _texts(body.input), field="input")
    data = [
        {
            "object": "embedding",
            "index": number,
            "embedding": _as_asked(_cut(vector, body.dimensions), body.encoding_format),
        }
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


@asks("/embed", "Vectors, as text-embeddings-inference gives them", list[list[float]])
async def embed(service: Service, body: EmbedBody) -> Any:
    """One a text."""
    program = service.models.find("embed", body.model).embedder(body.normalize)
    vectors = await service.ask(program, _texts(body.inputs), truncate=body.truncate is not False)
    return [_cut(vector, body.dimensions, normalize=body.normalize) for vector in vectors]


@asks("/predict", "Classes and their scores, the best first", list[LabelReply] | list[list[LabelReply]])
async def predict(service: Service, body: PredictBody) -> Any:
    """Of one text or pair a list; of several a list of lists. A model that was trained for numbers gives `value`."""
    served = service.models.find_one_of(("classify", "regress"), body.model)
    if body.raw_scores and served.engine.kind_of_task != "regress":
        raise FieldError("raw_scores", "of classes there are shares only")
    rows, alone = _rows(body.inputs)
    examples = [served.engine.task.example(*row) for row in rows]
    predictions = await service.ask(served.predictor(), examples, truncate=body.truncate is not False)
    most = None if body.parameters is None else body.parameters.top_k
    found = [_labels(prediction)[:most] for prediction in predictions]
    return found[0] if alone else found


@asks("/rerank", "Texts by how well they fit a query", list[RankReply])
async def rerank(service: Service, body: RerankBody) -> Any:
    """By a model that gives pairs a number where there is one, else by the cosine of vectors.

    The number comes between 0 and 1, by the logistic function, or as it is with `raw_scores`. A classifier of two
    classes ranks by the share of its positive class, but only where it is asked for by name: it may have been made for
    single texts.
    """
    served, truncate = service.models.find("rerank", body.model), body.truncate is not False
    if served.judges_pairs and (body.model is not None or served.engine.kind_of_task == "regress"):
        examples = [served.engine.task.example(body.query, text) for text in body.texts]
        found = await service.ask(served.predictor(), examples, truncate=truncate)
        scores = [_score(prediction, served, raw=body.raw_scores) for prediction in found]
    else:
        query, *texts = await service.ask(served.embedder(True), [body.query, *body.texts], truncate=truncate, beside=1)
        scores = [float(query @ text) for text in texts]
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    shown = [{"text": text} if body.return_text else {} for text in body.texts]
    return [{"index": number, "score": scores[number], **shown[number]} for number in order]


@asks("/", "What the first model is for, as text-embeddings-inference's clients ask it", in_schema=False)
async def first(service: Service, body: dict[str, Any]) -> Any:
    """A query with texts is ranked; texts get classes from a model that gives those, and vectors from others."""
    if "query" in body:
        return await rerank(service, _read(RerankBody, body))
    if service.models.all[0].engine.kind_of_task in ("classify", "regress"):
        found = await predict(service, _read(PredictBody, body))
        # Hugging Face's client, which sends `parameters`, expects a list for each text even of one.
        return [found] if "parameters" in body and isinstance(body["inputs"], str) else found
    return await embed(service, _read(EmbedBody, body))


@asks("/similarity", "Cosines of sentences", list[float] | list[list[float]])
async def similarity(service: Service, body: SimilarityBody) -> Any:
    """Of one sentence with others: a list. Without a source, of each with each: a matrix."""
    program = service.models.find("similarity", body.model).embedder(True)
    source, sentences = body.inputs.source_sentence, body.inputs.sentences
    truncate = body.parameters is None or body.parameters.truncate is not False
    if source is None:
        vectors = np.stack(await service.ask(program, sentences, truncate=truncate))
        return vectors @ vectors.T
    first, *others = await service.ask(program, [source, *sentences], truncate=truncate, beside=1)
    return np.stack(others) @ first


@asks("/tokenize", "Texts to pieces, with the characters that each is from", list[list[PieceReply]])
async def tokenize(service: Service, body: TokenizeBody) -> Any:
    """A list of pieces for each text."""
    tokenizer = service.models.find("tokenize", body.model).engine.tokenizer
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    service.check_number(texts)
    pairs = None if body.pair is None else [body.pair]
    size = sum(map(len, texts)) + len(body.pair or "")

    def work() -> list[list[dict[str, Any]]]:
        encodings = tokenizer.encode_batch(texts, pairs)
        service.check_tokens(sum(map(len, encodings)))
        rows = map(_tokens, encodings)
        return [[one for one in row if body.add_special_tokens or not one["special"]] for row in rows]

    return await service.aside(size, work)


@asks("/attention", "What every head looks at", AttentionReply)
async def attention(service: Service, body: AttentionBody) -> Any:
    """`weights` is base64 of little-endian float32, (layers, heads, size, size); at most 128 tokens."""
    served = service.models.find("attention", body.model)
    text = body.inputs if body.pair is None else (body.inputs, body.pair)
    (maps,) = await service.ask(served.attention, [text], truncate=False)
    layers, heads, size, _ = maps.shape
    encode, length = served.engine.tokenizer.encode, len(body.inputs) + len(body.pair or "")
    tokens = _tokens(await service.aside(length, lambda: encode(body.inputs, body.pair)))
    return {"tokens": tokens, "layers": layers, "heads": heads, "size": size, "weights": _base64(maps)}


@asks("/fill", "What may stand at each [MASK]", list[list[GapReply]])
async def fill(service: Service, body: FillBody) -> Any:
    """For each text its gaps, and for each gap the likeliest pieces."""
    served = service.models.find("fill", body.model)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    wanted = body.top_k * sum(text.count(served.engine.tokenizer.mask_token) for text in texts)
    if wanted > service.limits.tokens:
        raise TooLargeError(f"{wanted:,} candidates; {service.limits.tokens:,} are the most in one request")
    found = await service.ask(served.filler(min(body.top_k, served.engine.tokenizer.vocab_size)), texts)
    return [
        [{**gap._asdict(), "candidates": [candidate._asdict() for candidate in gap.candidates]} for gap in gaps]
        for gaps in found
    ]


@asks("/neighbours", "The pieces nearest to a word", list[list[CandidateReply]])
async def neighbours(service: Service, body: NeighboursBody) -> Any:
    """By cosine, in the table of vectors that the model begins with; for each word a list."""
    served = service.models.find("neighbours", body.model)
    words = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    found = await service.ask(served.finder(), words)
    return [[candidate._asdict() for candidate in candidates[: body.top_k]] for candidates in found]


@asks("/tag", "Tags of words, and entities with their characters", list[TagReply])
async def tag(service: Service, body: TagBody) -> Any:
    """One object a text."""
    served = service.models.find("tag", body.model)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    service.check_number(texts)
    example = served.engine.task.example
    examples = await service.aside(
        sum(map(len, texts)), lambda: [example(text=text, document=number) for number, text in enumerate(texts)]
    )
    return await service.ask(served.predictor(), examples)


@asks("/answer", "Where a text answers a question", AnswerReply)
async def answer(service: Service, body: AnswerBody) -> Any:
    """The best answer and the next best; `answer` is "" where the text has none."""
    served = service.models.find("answer", body.model)
    (found,) = await service.ask(served.predictor(), [served.engine.task.example(body.question, body.context)])
    best = found["candidates"][0] if found["answer"] else {}
    where = {key: best.get(key) for key in ("score", "start", "end")}
    rest = {"null_margin": found["null_margin"], "candidates": found["candidates"][: body.top_k]}
    return {"answer": found["answer"], **where, **rest}


@asks("/choose", "Which of several texts goes with a text", ChoiceReply)
async def choose(service: Service, body: ChooseBody) -> Any:
    """The choice, and the scores of all."""
    served = service.models.find("choose", body.model)
    (found,) = await service.ask(served.predictor(), [served.engine.task.example(body.text, body.choices)])
    return found


@routes.get("/v1/models", summary="The models, as OpenAI's clients ask for them", response_model=ModelsReply)
async def list_models(request: Request) -> Any:
    """By name."""
    names = request.app.state.service.models.names
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "bertsmith"} for name in names],
    }


@routes.get("/info", summary="What is loaded, and the limits", response_model=InfoReply)
async def info(request: Request) -> Any:
    """Of the first model as text-embeddings-inference has it, and of all in `models`."""
    service: Service = request.app.state.service
    first = service.models.all[0]
    return {
        "version": version("bertsmith"),
        "model_id": first.name,
        "model_sha": None,
        "model_dtype": "int8" if first.engine.int8 else "float32",
        "model_type": _type_of(first),
        "max_input_length": first.max_length,
        "max_concurrent_requests": service.limits.tokens,  # it is their tokens that are bounded
        "tokenization_workers": 1,
        "max_batch_tokens": service.batcher.budget,
        "max_client_batch_size": service.limits.texts,
        "auto_truncate": True,
        "models": [model.about() for model in service.models.all],
    }


QUEUED = frozenset(
    route.path for route in routes.routes if isinstance(route, APIRoute) and "POST" in (route.methods or ())
)
QUEUED -= {"/tokenize"}  # which needs no model


def _read(kind: type[Sent], content: dict[str, Any]) -> Sent:
    """A body of a kind that FastAPI could not know."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from error


def _texts(given: Any) -> list[TextLike]:
    """One text, several, the pieces of one, or of several."""
    return [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)


def _cut(vector: np.ndarray, dimensions: int | None, *, normalize: bool = True) -> np.ndarray:
    """The first dimensions of a vector, scaled to length 1 again."""
    if dimensions is None:
        return vector
    if dimensions > len(vector):
        raise FieldError("dimensions", f"{dimensions} of a vector that has {len(vector)}")
    part = vector[:dimensions]
    return part / max(float(np.linalg.norm(part)), 1e-12) if normalize else part


def _as_asked(vector: np.ndarray, form: str | None) -> Any:
    return _base64(vector) if form == "base64" else vector


def _base64(array: np.ndarray) -> str:
    """Little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def _rows(inputs: Any) -> tuple[list[list[str]], bool]:
    """Texts or pairs, and whether it is one that was not in a list."""
    if isinstance(inputs, str):
        return [[inputs]], True
    if isinstance(inputs[0], str):
        return [inputs], True
    return inputs, False


def _labels(prediction: Prediction) -> list[dict[str, Any]]:
    scores = prediction.get("scores") or {"value": prediction["value"]}
    return [{"label": label, "score": score} for label, score in sorted(scores.items(), key=lambda item: -item[1])]


def _score(prediction: Prediction, served: Served, *, raw: bool) -> float:
    """A number, or the share of the positive class."""
    if "value" in prediction:
        value = float(prediction["value"])
        return value if raw else 0.5 + 0.5 * math.tanh(0.5 * value)  # 1 / (1 + exp(-value)), without overflow
    if raw:
        raise FieldError("raw_scores", "of classes there are shares only")
    task = served.engine.task
    return float(prediction["scores"][getattr(task.options, "positive", None) or task.labels[1]])


def _tokens(encoding: Encoding) -> list[dict[str, Any]]:
    """What each piece is, and where in its text it stands; special tokens stand nowhere."""
    rows = zip(
        encoding.ids, encoding.tokens, encoding.offsets, encoding.type_ids, encoding.special_tokens_mask, strict=True
    )
    return [
        {
            "id": number,
            "text": token,
            "special": bool(special),
            "start": None if special else start,
            "stop": None if special else stop,
            "segment": segment,
        }
        for number, token, (start, stop), segment, special in rows
    ]


def _type_of(served: Served) -> dict[str, Any]:
    """As text-embeddings-inference calls it."""
    engine = served.engine
    if engine.kind_of_task is None:
        return {"embedding": {"pooling": engine.pooling.pool}}
    if engine.kind_of_task == "regress":
        return {"reranker": {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    labels = dict(enumerate(engine.task.labels))
    return {"classifier": {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}}
