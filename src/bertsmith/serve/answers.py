"""Answers as JSON, and errors in one form: what is wrong, of which kind, and in which field."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from bertsmith.errors import BertsmithError, InputError
from bertsmith.serve.batching import ClosedError, OverloadedError
from bertsmith.serve.served import NoSuchModelError

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

__all__ = ["FieldError", "TooLargeError", "busy_answer", "error_answer", "failed_answer", "json_answer", "name_errors"]

_log = logging.getLogger("bertsmith.serve")
_LONGEST_NAME = 100  # of a field, in an error

_KINDS = {404: "not_found", 408: "timeout", 413: "too_large"}


class TooLargeError(BertsmithError):
    """A request asks for more than the limits allow."""


class FieldError(InputError):
    """What a field of a request says is wrong for the model that was asked."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


def json_answer(content: Any) -> Response:
    """Plain values and NumPy arrays."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def error_answer(status: int, message: str, *, kind: str, field: str | None = None) -> Response:
    """What every error looks like."""
    content = {"error": {"message": message, "type": kind, "field": field}}
    return Response(orjson.dumps(content), status, media_type="application/json")


def name_errors(app: FastAPI) -> None:
    """An answer for everything that can go wrong; none has a path or a trace in it."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        del request
        if isinstance(error.body, bytes):  # FastAPI reads no other as JSON
            why = "the body was not read as JSON; send it with the header Content-Type: application/json"
            return error_answer(422, why, kind="invalid_request_error")
        first = min(error.errors(), key=_how_vague)
        _, *place = (str(part)[:_LONGEST_NAME] for part in first["loc"])
        field = ".".join(place[:1] + [part for part in place[1:] if not _is_a_choice(part)]) or None
        if first["type"] == "json_invalid":
            return error_answer(422, "the body is not JSON", kind="invalid_request_error")
        message = first["msg"].removeprefix("Value error, ")
        return error_answer(422, f"{field}: {message}" if field else message, kind="invalid_request_error", field=field)

    @app.exception_handler(HTTPException)
    async def by_status(request: Request, error: HTTPException) -> Response:
        del request
        if error.status_code == 400:  # FastAPI's word for bytes that are not UTF-8, numbers and nesting beyond reason
            return error_answer(422, "the body is not JSON that can be read", kind="invalid_request_error")
        kind = _KINDS.get(error.status_code, "invalid_request_error")
        answer = error_answer(error.status_code, str(error.detail), kind=kind)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(BertsmithError)
    async def ours(request: Request, error: BertsmithError) -> Response:
        del request
        if isinstance(error, OverloadedError):
            return busy_answer(error)
        if isinstance(error, ClosedError):
            return error_answer(503, str(error), kind="unavailable")
        if isinstance(error, TooLargeError):
            return error_answer(413, str(error), kind="too_large")
        if isinstance(error, NoSuchModelError):
            return error_answer(404, str(error), kind="not_found", field="model")
        if isinstance(error, InputError):
            field = error.field if isinstance(error, FieldError) else None
            return error_answer(422, str(error), kind="invalid_request_error", field=field)
        return failed_answer(error)


def busy_answer(error: OverloadedError) -> Response:
    """With the seconds after which to come back."""
    answer = error_answer(429, str(error), kind="overloaded")
    answer.headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return answer


def failed_answer(error: Exception) -> Response:
    """Of what nobody thought of; the log has the rest."""
    _log.error("a request failed", exc_info=error)
    return error_answer(500, "something went wrong inside; the server's log says what", kind="internal_error")


def _how_vague(error: dict[str, Any]) -> tuple[bool, int]:
    """Where a field may be of several types each has its error; one about a value, deep inside, says most."""
    return error["type"].endswith("_type"), -len(error["loc"])


def _is_a_choice(part: str) -> bool:
    """Pydantic puts the name of a type into a place where a field may be of several; nobody sent that."""
    return part in ("str", "constrained-str") or "[" in part
