"""The service on a Ray cluster: the whole application in every replica, behind the proxies of Ray Serve.

    pip install 'bertsmith[serve,cluster]'
    BERTSMITH_MODELS="minilm ner=runs/ner" serve run examples.ray_serve:app

The service keeps nothing between requests, so any replica may answer any of them. Models must be found by the same
name on every node. BERTSMITH_TOKEN asks for a bearer token, BERTSMITH_REPLICAS says how many replicas there are, and
BERTSMITH_CPUS how many cores each has. Ray sets the number of threads to that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ray import serve

from bertsmith.serve.app import make_app
from bertsmith.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI


# Ray's own limit on the requests of a replica is out of the way: its queue would stand before ours, which batches
# across requests and refuses what would wait too long.
@serve.deployment(max_ongoing_requests=10_000)
@serve.ingress()
class Bertsmith:
    """One replica; Ray asks it for its application when it has been made."""

    def __init__(self, settings: str) -> None:
        self.settings = ServeSettings.model_validate_json(settings)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return make_app(self.settings)


def deploy(
    models: tuple[str, ...], *, token: str | None = None, replicas: int = 1, cpus: float = 1
) -> serve.Application:
    """What `serve run` or `serve.run` takes."""
    settings = ServeSettings(models=models, token=token)
    options = {"num_replicas": replicas, "ray_actor_options": {"num_cpus": cpus}}
    return Bertsmith.options(**options).bind(settings.model_dump_json())


app = deploy(
    tuple(os.environ.get("BERTSMITH_MODELS", "minilm").split()),
    token=os.environ.get("BERTSMITH_TOKEN"),
    replicas=int(os.environ.get("BERTSMITH_REPLICAS", "1")),
    cpus=float(os.environ.get("BERTSMITH_CPUS", "1")),
)
