"""`serve`: models over HTTP, with a page to try them on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from bertsmith.errors import BertsmithError, InputError
from bertsmith.settings import validated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["find_port", "serve"]


def serve(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    workers: int = 1,
    cors: Sequence[str] = (),
    int8: bool = False,
    limits: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> None:
    """Serve models, each MODEL or NAME=MODEL, until a signal comes."""
    try:
        from bertsmith.serve.running import serve_forever
        from bertsmith.serve.settings import ServeSettings
    except ImportError as error:
        raise BertsmithError(
            f"serving needs packages that are not installed ({error.name}): pip install 'bertsmith[serve]'"
        ) from error
    if workers < 1:
        raise InputError(f"workers: {workers} is not a number of processes")
    port = find_port(host, port)
    content = {"models": tuple(models), "token": token, "cors": tuple(cors), "int8": int8, "limits": dict(limits or {})}
    serve_forever(validated(ServeSettings, content), host=host, port=port, workers=workers, verbose=verbose)


def find_port(host: str, port: int) -> int:
    """The port, or a free one for 0; that it is taken is said at once, and not when the models are loaded."""
    if not 0 <= port < 2**16:  # the system would take the rest of a division
        raise InputError(f"{host}:{port}: cannot listen there (no such port); name another with --port")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
            return int(tried.getsockname()[1])
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{host}:{port}: cannot listen there ({why}); name another with --port") from error
