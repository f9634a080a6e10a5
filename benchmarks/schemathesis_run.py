"""Schemathesis against a running service: 10,000 requests made from its own OpenAPI, and no failure.

All checks of Schemathesis are on. One is told more than OpenAPI can say: some routes may refuse a request that fits its
schema, because what fits depends on the model (`NARROWER`). A refusal there must still be one of the documented
answers. Two services get half of the requests each: one has a model of classes and is open to all, the other a model of
numbers and wants a token.
"""

from __future__ import annotations

import json
import math
import os
import socket
import string
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from figures import Figures, read_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

# Routes, and why a request that fits the schema may be wrong for a model.
NARROWER = {
    "/v1/embeddings": "pieces beyond the vocabulary, more dimensions than a vector has",
    "/embed": "the same; a text too long for `truncate: false`",
    "/predict": "`raw_scores` of a model that gives classes; a text too long for `truncate: false`",
    "/rerank": "the same",
    "/similarity": "a text too long for `truncate: false`",
    "/fill": "a text without a gap",
    "/neighbours": "a word that the vocabulary does not have",
    "/tokenize": "a pair with several texts",
    "/attention": "a text of more than 128 tokens",
}
ALLOWED = ["2xx", "404", "413", "422"]
LEAST_GOOD = 10  # answers of 200 that every route must have given, or its checks looked at refusals only
POSTS = 12  # routes with a body; the others have nothing to vary
SECONDS = 60  # for the server to start

# The models that a service is without, and the token that it wants.
SERVICES: tuple[tuple[str, str | None], ...] = (("grader", None), ("critic", "a-token"))

# name: kind of model, its classes, its kind of task
MODELS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "filler": ("mlm", (), None),
    "critic": ("classification", ("bad", "good"), "classify"),
    "grader": ("classification", ("value",), "regress"),
    "finder": ("tagging", ("O", "B-PER", "I-PER"), "tag"),
    "reader": ("span", (), "answer"),
    "chooser": ("choice", (), "choose"),
}


def configuration() -> dict[str, Any]:
    """What Schemathesis is told, as its `schemathesis.toml` has it."""
    check = {"positive_data_acceptance": {"expected-statuses": ALLOWED}}
    return {"operations": [{"include-path": path, "checks": check} for path in NARROWER]}


def configuration_file() -> str:
    """The same as TOML."""
    lines = []
    for operation in configuration()["operations"]:
        lines += ["[[operations]]", f"include-path = {json.dumps(operation['include-path'])}"]
        lines += [f"checks.positive_data_acceptance.expected-statuses = {json.dumps(ALLOWED)}", ""]
    return "\n".join(lines)


def write_models(folder: Path) -> dict[str, str]:
    """A small model of random weights for every kind of head."""
    from bertsmith.bundle.folder import Bundle, write_bundle
    from bertsmith.config import BertConfig
    from bertsmith.model.heads import build
    from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

    letters = [*string.ascii_lowercase, *string.digits]
    pieces = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), *string.punctuation]
    shape = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
    )
    for name, (kind, labels, task) in MODELS.items():
        config = shape.derive(id2label=dict(enumerate(labels))) if labels else shape
        options = None if task is None else {"kind": task, "options": {"max_length": 64}}
        bundle = Bundle(build(config, kind, seed=0), Tokenizer.from_pieces(pieces), 128, options)
        write_bundle(folder / name, bundle, source="random weights")
    return {name: str(folder / name) for name in MODELS}


def start(models: list[str], token: str | None, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """`bertsmith serve` on a free port, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    line = [sys.executable, "-m", "bertsmith", "serve", *models, "--port", str(port)]
    line += [] if token is None else ["--token", token]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=log.open("wb"))
    address = f"http://127.0.0.1:{port}"
    for _ in range(10 * SECONDS):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
        else:
            return process, address
    process.kill()
    raise RuntimeError(f"the service did not start: {log.read_text()}")


def run(address: str, token: str | None, examples: int, folder: Path, seed: int) -> tuple[int, str]:
    """The command line of Schemathesis; its exit code, and what it printed."""
    (folder / "schemathesis.toml").write_text(configuration_file())
    line = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--continue-on-failure"]
    line += ["--max-examples", str(math.ceil(examples / POSTS)), "--seed", str(seed)]
    line += ["--suppress-health-check", "all", "--warnings", "off"]
    line += [] if token is None else ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    return done.returncode, done.stdout + done.stderr


def summary(printed: str) -> Iterator[str]:
    """The lines of its own summary."""
    _, _, rest = printed.partition(" SUMMARY ")
    yield from (line.rstrip() for line in rest.splitlines()[1:])


def routes_of(address: str, token: str | None) -> dict[str, bool]:
    """The routes of the service's own OpenAPI, from which requests are made, and whether each has a body to vary."""
    asked = urllib.request.Request(f"{address}/openapi.json", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as page:
        return {path: "post" in methods for path, methods in json.load(page)["paths"].items()}


def fewest_good(by_route: dict[str, Counter[str]], asked: dict[str, bool], *, body: bool) -> tuple[int, str]:
    """The fewest 200s that a route gave, of those with a body or of those without, and which that is."""
    return min((by_route.get(route, Counter())["200"], route) for route, varies in asked.items() if varies == body)


def main() -> int:
    """Run it, and say what came of it."""
    parser = harness.parser("Schemathesis against a running service")
    parser.add_argument("--examples", type=int, default=10_000, help="requests, at the least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    codes, log, shown, began = [], "", [], time.perf_counter()
    requests, asked = Counter[tuple[str, str]](), dict[str, bool]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        models = write_models(folder / "models")
        for without, token in SERVICES:
            served = [path for name, path in models.items() if name != without]
            process, address = start(served, token, folder / "log")
            try:
                code, printed = run(address, token, options.examples // len(SERVICES), folder, options.seed)
                asked |= routes_of(address, token)
                requests += read_figures(address, token).requests
            finally:
                process.terminate()
                process.wait(SECONDS)
            codes.append(code)
            log += (folder / "log").read_text()
            shown += ["", f"Without `{without}`, {'no token' if token is None else 'with a token'}:", ""]
            shown += ["```text", *summary(printed), "```"]
            if code:
                print(printed[-8000:], file=sys.stderr)
    seconds, found = time.perf_counter() - began, Figures(requests, 0.0)
    total, wrong, by_route = requests.total(), found.with_status("5"), found.by_route()
    (posted, post), (got, get) = (fewest_good(by_route, asked, body=body) for body in (True, False))
    verdicts = [
        ("requests", f"{options.examples:,}", f"{total:,}", total >= options.examples),
        ("exit codes of Schemathesis", "0", ", ".join(map(str, codes)), not any(codes)),
        ("answers of 500 and above", "0", str(wrong), wrong == 0),
        ("tracebacks in the log", "0", str(log.count("Traceback")), "Traceback" not in log),
        ("200s of each route with a body", f"at least {LEAST_GOOD}", f"{posted:,} ({post})", posted >= LEAST_GOOD),
        ("200s of each route without one, where nothing varies", "at least 1", f"{got:,} ({get})", got >= 1),
    ]
    lines = [
        (__doc__ or "").strip(),
        "",
        f"Requests are made from `/openapi.json`, valid ones and broken ones, and sent to `bertsmith serve` with "
        f"{len(MODELS) - 1} small models of random weights. {len(NARROWER)} routes may refuse what fits their schema, "
        "with 404, 413 or 422:",
        "",
        *(f"- `{path}`: {why}" for path, why in NARROWER.items()),
        "",
        f"{harness.versions('schemathesis', 'hypothesis', 'fastapi', 'uvicorn')}; {seconds:.0f} s; seed {options.seed}",
        "",
        f"Peak of this machine in float32: {harness.describe_peaks([harness.measure_peak()])}. Operations are not "
        "counted: nothing is timed.",
        "",
        *harness.verdict_table(verdicts, measured="measured, in one run"),
        "",
        "Answers of both services, by their own count (`other` is what no route answers):",
        "",
        "| route | answers by status |",
        "|---|---|",
        *(f"| {name} | {_statuses(counts)} |" for name, counts in by_route.items()),
        f"| all | {_statuses(found.by_status())} |",
        *shown,
    ]
    harness.show("serve-schemathesis", "Schemathesis against the service", lines, keep=options.keep)
    return 0 if all(met for *_, met in verdicts) else 1


def _statuses(counts: Counter[str]) -> str:
    return ", ".join(f"{status} × {count:,}" for status, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
