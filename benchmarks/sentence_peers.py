"""sentence-transformers as a contender: each backend in a process of its own, told when to work.

Its ONNX and OpenVINO backends want other versions of `transformers` than this project has, so they get environments of
their own under runs/peers/, made when they are first wanted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = ("torch", "onnx", "openvino")
# Torch first and alone: its CPU build. The OpenVINO backend names torchvision, which would bring another torch, and
# tools for quantising; it runs without them.
INSTALLS = {
    "onnx": (["torch==2.13.0"], ["sentence-transformers[onnx]==5.7.0"]),
    "openvino": (
        ["torch==2.13.0"],
        ["sentence-transformers==6.2.0", "transformers==5.5.4", "openvino==2026.4.1", "requests"],
        ["--no-deps", "optimum==2.3.0", "optimum-intel==2.2.0"],
    ),
}


def environment(backend: str) -> Path:
    """The Python that has a backend; this one for torch."""
    if backend == "torch":
        return Path(sys.executable)
    folder = ROOT / "runs" / "peers" / f"st-{backend}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True)
        for wanted in INSTALLS[backend]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (folder / ".installed").touch()
    return python


class SentencePeer:
    """One backend, ready to encode; a context that ends its process."""

    def __init__(self, backend: str, folder: Path, texts: list[str], scratch: Path, threads: int) -> None:
        self.count, self.target = len(texts), scratch / f"{backend}.npy"
        source = scratch / f"{backend}.json"
        source.write_text(json.dumps(texts), encoding="utf-8")
        worker = Path(__file__).with_name("sentence_worker.py")
        command = [environment(backend), worker, backend, folder, source, self.target, threads]
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._hear("ready")

    def encode_all(self) -> None:
        """Every text; what comes out stays there."""
        self._say("all")

    def vectors(self) -> np.ndarray:
        """Every text, and what comes out."""
        self._say("save")
        return np.load(self.target)

    def encode_one(self, number: int) -> None:
        """A single text."""
        self._say(str(number))

    def _say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        self._hear("done")

    def _hear(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise RuntimeError(f"{self.process.args}: ended with code {self.process.wait()}")

    def version(self) -> str:
        """Of the packages that count, in its environment."""
        names = (
            "sentence-transformers",
            "transformers",
            "optimum",
            "optimum-onnx",
            "optimum-intel",
            "onnxruntime",
            "openvino",
        )
        code = f"from importlib.metadata import distributions as d\nfor x in d():\n  if x.name in {names}: print(x.name, x.version)"  # noqa: E501
        python = str(self.process.args[0])  # type: ignore[index]
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
        return ", ".join(found.strip().splitlines())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
