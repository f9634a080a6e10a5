"""`bertsmith serve`."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import note_on_int8, pairs_of, print_note

__all__ = ["serve"]


def serve(
    *models: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    workers: int = 1,
    cors: Annotated[list[str] | None, Parameter(negative="")] = None,
    int8: Annotated[bool, Parameter(negative="")] = False,
    limits: Annotated[list[str] | None, Parameter(name="--limit", negative="")] = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Serve models over HTTP, with a page to try them on.

    Embeddings as OpenAI's clients and text-embeddings-inference ask for them, fill-in, classes, entities, answers.
    docs/serving.md has all routes; /openapi.json too.

    Parameters
    ----------
    models
        One or several, each MODEL or NAME=MODEL.
    host
        The address to listen on; this machine alone, if nothing is said.
    port
        The port to listen on; 0 for any that is free, which is then shown.
    token
        A bearer token that every request must carry; the environment variable BERTSMITH_TOKEN does the same, and does
        not show in the list of processes.
    workers
        Processes, each with the models of its own.
    cors
        An origin whose pages may ask; again for more.
    int8
        Compute in eight bits, on a CPU: faster where it has AVX512-VNNI, a little less exact.
    limits
        NAME=VALUE: body (bytes), texts and tokens of a request, wait, timeout and sending in seconds.
    verbose
        Log every request.
    """
    from bertsmith.errors import InputError
    from bertsmith.jobs.serve import find_port
    from bertsmith.jobs.serve import serve as job

    if not models:
        raise InputError("which models? As in: bertsmith serve minilm")
    if int8:
        note_on_int8()
    port = find_port(host, port)
    print_note(f"loading {', '.join(models)}; then at http://{host}:{port}")
    job(
        models,
        host=host,
        port=port,
        token=token if token is not None else os.environ.get("BERTSMITH_TOKEN"),
        workers=workers,
        cors=cors or (),
        int8=int8,
        limits=pairs_of(limits or [], "--limit", "timeout=10"),
        verbose=verbose,
    )
