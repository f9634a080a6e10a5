"""The deployment for Ray Serve, on a real Ray of this machine, started as its docstring says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from absence import absent
from serve.conftest import SECONDS, free_port

if TYPE_CHECKING:
    from bertsmith.infer.engine import Engine

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["the river was good", "anna lives in paris."]

# What `serve run` does, with a Ray that has no dashboard and a port that is free.
SCRIPT = """
import sys
import ray
from ray import serve
from ray.serve.config import HTTPOptions
import examples.ray_serve
ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(http_options=HTTPOptions(host="127.0.0.1", port=int(sys.argv[1])))
serve.run(examples.ray_serve.app)
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


def ask(port: int, path: str, body: object = None, token: str = "secret") -> tuple[int, object]:
    content = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_deployment_answers_as_the_service_does(folders: dict[str, Path], small: dict[str, Engine]):
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("aiohttp_cors") is None:
        absent("Ray Serve is not installed (pip install 'bertsmith[cluster]')")
    port = free_port()
    named = {
        "BERTSMITH_MODELS": f"{folders['filler']} stars={folders['critic']}",
        "BERTSMITH_TOKEN": "secret",
        "BERTSMITH_REPLICAS": "2",
        "BERTSMITH_CPUS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(port)], env={**os.environ, **named}, cwd=ROOT, text=True, **pipes
    )
    too_late = threading.Timer(4 * SECONDS, process.kill)
    too_late.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line, process.communicate(timeout=SECONDS)
        status, info = ask(port, "/info")
        assert status == 200
        assert [model["name"] for model in info["models"]] == ["filler", "stars"]
        assert ask(port, "/info", token="wrong")[0] == 401
        wanted = small["filler"].embed(TEXTS, normalize=True)
        for _ in range(6):  # whichever replica answers
            status, found = ask(port, "/v1/embeddings", {"input": TEXTS})
            assert status == 200
            assert np.allclose([one["embedding"] for one in found["data"]], wanted, atol=1e-5)
        best = small["critic"].classify([TEXTS[0]])[0]
        assert ask(port, "/predict", {"inputs": TEXTS[0]})[1][0]["label"] == best["label"]
        assert ask(port, "/embed", {"inputs": 3})[1]["error"]["field"] == "inputs"
    finally:
        too_late.cancel()
        try:
            process.communicate("", timeout=2 * SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
    assert process.returncode == 0
