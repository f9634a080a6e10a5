"""What a service can be told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bertsmith.settings import Strict

__all__ = ["Limits", "ServeSettings"]

Seconds = Annotated[float, Field(gt=0.0, le=3600.0)]


class Limits(Strict):
    """What one request may ask for, and how long things may take."""

    body: Annotated[int, Field(ge=1024)] = 4 * 2**20  # bytes
    texts: Annotated[int, Field(ge=1)] = 1024  # in one request
    tokens: Annotated[int, Field(ge=512)] = 131_072  # in one request
    wait: Seconds = 2.0  # of work in the queue; beyond that a request is refused
    timeout: Seconds = 30.0  # until a request that was taken must be answered
    sending: Seconds = 10.0  # until a client must have sent its request


class ServeSettings(Strict):
    """All of it; `token` is never shown."""

    models: Annotated[tuple[str, ...], Field(min_length=1)]  # NAME or NAME=MODEL
    token: Annotated[str | None, Field(repr=False, min_length=1)] = None
    cors: tuple[str, ...] = ()
    int8: bool = False
    threads: Annotated[int | None, Field(ge=1)] = None
    limits: Limits = Field(default_factory=Limits)
