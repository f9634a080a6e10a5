"""The service as processes: the command line, signals, workers, and what is said when it cannot start."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.cli.main import run
from bertsmith.errors import InputError
from bertsmith.serve import app, running
from bertsmith.serve.served import load_models
from bertsmith.serve.settings import ServeSettings
from serve.conftest import SECONDS, command, until

if TYPE_CHECKING:
    from pathlib import Path


def ask(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    content = None if body is None else json.dumps(body)
    connection.request(
        "GET" if body is None else "POST", path, content, {"content-type": "application/json", **headers}
    )
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text


def test_sigterm_finishes_what_was_taken_and_ends_well(folders: dict[str, Path]):
    secret = "a-token-of-the-environment"
    models = (f"words={folders['filler']}", folders["critic"])
    with command(*models, "--limit", "texts=2000", BERTSMITH_TOKEN=secret) as (process, port):
        bearer = {"authorization": f"Bearer {secret}"}
        assert ask(port, "/info")[0] == 401
        code, info = ask(port, "/info", **bearer)
        assert code == 200
        assert [model["name"] for model in info["models"]] == ["words", "critic"]
        texts = ["stone " * 60] * 2000  # some seconds of work
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        body = json.dumps({"inputs": texts})
        connection.request("POST", "/embed", body, {"content-type": "application/json", **bearer})
        until(lambda: "bertsmith_queue_tokens 0.0" not in ask(port, "/metrics", **bearer)[1])
        assert not select.select([connection.sock], [], [], 0)[0], "it was answered too soon for this test"
        process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert answer.status == 200
        assert len(json.loads(answer.read())) == len(texts)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert "Traceback" not in errors
        assert secret not in errors
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def test_workers_share_a_port_and_their_figures_are_added_up(folders: dict[str, Path]):
    def figure(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (.*)$", ask(port, "/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    with command(folders["filler"], "--workers", 2) as (process, port):
        until(lambda: figure("bertsmith_sequences_total") == 2 * 24)  # both have warmed up
        answers = [ask(port, "/embed", {"inputs": "anna"}) for _ in range(30)]
        assert {code for code, _ in answers} == {200}
        assert all(vectors == answers[0][1] for _, vectors in answers)
        until(lambda: figure('bertsmith_requests_total{route="/embed",status="200"}') == 30)  # counted when sent
        until(lambda: figure("bertsmith_sequences_total") == 2 * 24 + 30)
        assert figure("bertsmith_queue_tokens") == 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert "Traceback" not in errors


def test_the_queue_of_a_worker_that_was_killed_is_not_counted(tmp_path: Path):
    worker = (
        "import os; from bertsmith.serve.metrics import Metrics; m = Metrics(); m.ran(1, 5, 1.0); m.standing(%d, 9.0)"
    )
    around = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    ends = ("os.kill(os.getpid(), 9)", "print(m.shown().decode())")
    killed, alive = (
        subprocess.run([sys.executable, "-c", f"{worker % 7}; {end}"], env=around, capture_output=True, check=False)
        for end in ends
    )
    assert killed.returncode == -signal.SIGKILL
    assert b"bertsmith_queue_tokens 7.0" in alive.stdout
    assert b"bertsmith_tokens_total 10.0" in alive.stdout  # what it did, it did


def test_a_port_that_is_taken_is_said_before_models_are_loaded(monkeypatch, capsys):
    monkeypatch.setattr("bertsmith.serve.served.load", lambda *_, **__: pytest.fail("a model was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert run(["serve", "anything", "--port", str(port)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"bertsmith: 127\.0\.0\.1:{port}: cannot listen there \(.*in use\); name another.*", said[-1])


def test_the_port_that_is_shown_for_0_is_the_one_that_is_used(monkeypatch, capsys):
    port = told(monkeypatch, "minilm", "--port", "0")["port"]
    assert port > 0
    assert f"http://127.0.0.1:{port}" in capsys.readouterr().err
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(
    "arguments", [["--host", "a" * 80], ["--host", "no.such.host.invalid"], ["--port", "99999"], ["--port", "-1"]]
)
def test_a_place_that_cannot_be_is_one_sentence(arguments: list[str], monkeypatch, capsys):
    monkeypatch.setattr("bertsmith.serve.served.load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert run(["serve", "anything", *arguments]) == 2
    assert "cannot listen there" in capsys.readouterr().err.splitlines()[-1]


def test_missing_packages_are_one_sentence(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("bertsmith.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", "anything"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("packages that are not installed (uvicorn): pip install 'bertsmith[serve]'")


def told(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """What the command line hands to the job."""
    found: dict[str, Any] = {}
    monkeypatch.setattr("bertsmith.jobs.serve.serve", lambda models, **options: found.update(options, models=models))
    assert run(["serve", *arguments]) == 0
    return found


def test_this_machine_alone_without_token_or_cors_unless_told(monkeypatch):
    monkeypatch.delenv("BERTSMITH_TOKEN", raising=False)
    found = told(monkeypatch, "minilm")
    assert (found["host"], found["token"], list(found["cors"]), found["workers"]) == ("127.0.0.1", None, [], 1)


def test_the_token_is_the_commands_or_the_environments(monkeypatch):
    monkeypatch.setenv("BERTSMITH_TOKEN", "outer")
    assert told(monkeypatch, "minilm")["token"] == "outer"
    assert told(monkeypatch, "minilm", "--token", "inner")["token"] == "inner"


def test_an_empty_token_is_refused_and_not_taken_for_none(monkeypatch, capsys):
    """As `--token "$UNSET"` has it: the service would be open to all."""
    monkeypatch.delenv("BERTSMITH_TOKEN", raising=False)
    monkeypatch.setattr("bertsmith.serve.running.serve_forever", lambda *_, **__: pytest.fail("it was served"))
    assert run(["serve", "minilm", "--token", "", "--port", "0"]) == 2
    assert "token" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setenv("BERTSMITH_TOKEN", "")
    assert run(["serve", "minilm", "--port", "0"]) == 2
    assert "token" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "which models"),
        (["a", "--workers", "0"], "workers"),
        (["a", "--limit", "speed=1"], "limits.speed"),
        (["a", "--limit", "texts"], "--limit texts"),
        (["a", "--limit", "texts=none"], "limits.texts"),
        (["a", "--limit", "timeout=0"], "limits.timeout"),
    ],
)
def test_wrong_options_are_one_sentence_that_names_them(arguments: list[str], named: str, monkeypatch, capsys):
    monkeypatch.setattr("bertsmith.serve.running.serve_forever", lambda *_, **__: pytest.fail("it was served"))
    assert run(["serve", *arguments, "--port", "0"]) == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_models_are_named_by_their_folder_or_as_told(folders: dict[str, Path]):
    models = load_models([f"{folders['filler']}/", f"stars={folders['critic']}"])
    assert models.names == ["filler", "stars"]
    with pytest.raises(InputError, match="two models are called filler"):
        load_models([str(folders["filler"]), f"filler={folders['critic']}"])
    for text in ("=x", "x="):
        with pytest.raises(InputError, match="expected MODEL or NAME=MODEL"):
            load_models([text])


def test_a_folder_with_an_equals_sign_is_no_name(folders: dict[str, Path], tmp_path: Path):
    (tmp_path / "rate=1").symlink_to(folders["filler"])
    assert load_models([str(tmp_path / "rate=1")]).names == ["rate=1"]


def test_a_worker_that_cannot_start_says_why_and_is_not_started_again(monkeypatch, capsys, tmp_path):
    settings = ServeSettings(models=(str(tmp_path / "none"),))
    monkeypatch.setenv(app.SETTINGS_VARIABLE, settings.model_dump_json())
    with pytest.raises(SystemExit) as ended:
        app.app_from_environment()
    assert ended.value.code == running.STARTUP_FAILURE
    said = capsys.readouterr().err
    assert said.startswith(f"bertsmith: {tmp_path}")
    assert "Traceback" not in said


def test_workers_that_cannot_start_are_an_error_of_the_whole(monkeypatch):
    class Supervisor:
        def __init__(self, *_: object) -> None:
            self.processes = [SimpleNamespace(exitcode=-15), SimpleNamespace(exitcode=running.STARTUP_FAILURE)]

        def run(self) -> None:
            """They have ended."""

    monkeypatch.setenv(app.SETTINGS_VARIABLE, "")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(running, "Multiprocess", Supervisor)
    with pytest.raises(InputError, match="no worker could start"):
        running.serve_forever(ServeSettings(models=("any",)), host="127.0.0.1", port=0, workers=2)
