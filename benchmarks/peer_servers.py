"""The servers that take part in `serve.py`, each a process of its own on 127.0.0.1.

- bertsmith: `bertsmith serve minilm`.
- infinity: infinity-emb with its torch engine, in an environment of its own under runs/peers/infinity, because it wants
  old versions of transformers, NumPy and typer. `install_infinity` makes it where it is not.
- plain: FastAPI and sentence-transformers as anyone would write it in ten lines; run by this file itself.

All have the same folder of weights, float32 and the same number of threads (OMP_NUM_THREADS).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
INFINITY = ROOT / "runs" / "peers" / "infinity"
INFINITY_VERSION = "0.0.78"
# With these it uses BetterTransformer, its default, which optimum 2 no longer has. Without optimum it runs too, slower.
INFINITY_PINS = ("optimum==1.27.0", "transformers==4.48.3", "sentence-transformers==3.4.1", "numpy==1.26.4")
TORCH = "torch==2.13.0"
_START = 180.0  # seconds until a server must answer
_STOP = 15.0  # and until it must be gone


@dataclass
class Server:
    """How to run one and how to ask it; a context manager, so that it never outlives the benchmark."""

    name: str
    command: Sequence[str]
    port: int
    path: str
    form: str  # of its answers: see load_generator.Job
    field: str  # of a body, with the text
    log: Path
    threads: int = 2
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        variables = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1", **self.environment}
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the benchmark alone, which then stops the server.
            self.process = subprocess.Popen(
                self.command, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the process, which must have been started."""
        assert self.process is not None
        return self.process.pid

    def pause(self) -> None:
        """Another one's turn."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Its turn."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, by force where it does not go."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        self.go_on()
        try:
            self.process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def resident(self) -> float:
        """MiB in memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    def sockets(self) -> int:
        """Open sockets of the process."""
        found = 0
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                found += str(entry.readlink()).startswith("socket:")
            except FileNotFoundError:  # closed in between
                continue
        return found

    def processor_time(self) -> float:
        """Seconds on a core so far, all threads together."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        end = time.monotonic() + _START
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        lines = self.log.read_text(errors="replace").splitlines()[-20:]
        raise RuntimeError(f"{self.name} did not start:\n" + "\n".join(lines))


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def bertsmith_server(scratch: Path, threads: int, *, limits: Sequence[str] = ()) -> Server:
    """Ours."""
    port = free_port()
    command = [sys.executable, "-m", "bertsmith", "serve", "minilm", "--port", str(port)]
    command += [part for limit in limits for part in ("--limit", limit)]
    log = scratch / "bertsmith.log"
    return Server("bertsmith", command, port, "/v1/embeddings", "openai", "input", log, threads)


def plain_server(scratch: Path, threads: int, folder: Path) -> Server:
    """FastAPI and sentence-transformers."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).resolve()), str(folder), str(port)]
    return Server("plain", command, port, "/embed", "bare", "inputs", scratch / "plain.log", threads)


def infinity_server(scratch: Path, threads: int, folder: Path) -> Server:
    """infinity-emb, which would otherwise log every request and report its use to its makers."""
    install_infinity()
    port = free_port()
    command = [str(INFINITY / "bin" / "infinity_emb"), "v2", "--model-id", str(folder), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--engine", "torch", "--device", "cpu", "--dtype", "float32"]
    command += ["--log-level", "warning"]
    quiet = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "TRANSFORMERS_OFFLINE": "1"}
    log = scratch / "infinity.log"
    return Server("infinity", command, port, "/embeddings", "openai", "input", log, threads, quiet)


def install_infinity() -> None:
    """An environment for it, once: torch first and alone, which takes its CPU build where there is one."""
    if (INFINITY / "installed").exists():
        return
    sys.stderr.write(f"installing infinity-emb {INFINITY_VERSION} into {INFINITY.relative_to(ROOT)}\n")
    subprocess.run([sys.executable, "-m", "venv", str(INFINITY)], check=True)
    pip = [str(INFINITY / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, TORCH], check=True)
    subprocess.run([*pip, TORCH, f"infinity-emb[server,torch]=={INFINITY_VERSION}", *INFINITY_PINS], check=True)
    (INFINITY / "installed").touch()


def infinity_versions() -> str:
    """What stands in its environment."""
    names = ("infinity-emb", "torch", "transformers", "sentence-transformers", "fastapi", "uvicorn")
    code = f"import importlib.metadata as m; print(', '.join(f'{{n}} {{m.version(n)}}' for n in {names!r}))"
    python = str(INFINITY / "bin" / "python")
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def plain_app(folder: str) -> Any:
    """What people write: a model, a route, a thread for each request."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    class Texts(BaseModel):
        inputs: str | list[str]

    model = SentenceTransformer(folder, device="cpu")
    app = FastAPI()

    def embed(body: Texts) -> list[list[float]]:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        return model.encode(texts, show_progress_bar=False).tolist()

    embed.__annotations__["body"] = Texts  # a name of this function, which FastAPI cannot look up
    app.post("/embed")(embed)
    app.get("/health")(lambda: "well")
    return app


def main() -> None:
    """Run the plain server: peer_servers.py FOLDER PORT."""
    import uvicorn

    uvicorn.run(plain_app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")


if __name__ == "__main__":
    main()
