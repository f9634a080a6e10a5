"""What a run of any kind keeps of what it was asked for (`config.json` of its folder), and when it may go on."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel

from bertsmith.errors import InputError
from bertsmith.folders import write_whole

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CONFIG_FILE", "AnyRequest", "RunRequest", "take_up", "write_request"]

CONFIG_FILE = "config.json"
# How a user names what is inside these fields; what is not known yet when a run is asked for is not compared.
_PREFIXES = {"settings": "", "budget": "", "options": "task."}
_FIXED_LATER = ("total", "train_digest", "dev_digest", "model_digest")


class RunRequest(Protocol):
    """A dataclass whose `settings` are a run's."""

    @property
    def settings(self) -> Any:
        """Those of `RunSettings`, and batches with a `part`."""


AnyRequest = TypeVar("AnyRequest", bound=RunRequest)


def write_request(folder: Path, request: RunRequest) -> None:
    """Write `config.json`."""
    content = {"bertsmith": importlib.metadata.version("bertsmith"), **_plain(request)}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / CONFIG_FILE, lambda file: file.write(text.encode()))


def take_up(asked: AnyRequest, stored: AnyRequest) -> AnyRequest:
    """A run that goes on is the one that was begun; processes, parts and checkpoints may be others."""
    free = {name: getattr(asked.settings, name) for name in ("spread", "compile", "checkpoint")}
    free["batch"] = stored.settings.batch.model_copy(update={"part": asked.settings.batch.part})
    taken: AnyRequest = replace(stored, settings=stored.settings.model_copy(update=free))  # type: ignore[type-var]
    now, before = _flat(_plain(asked)), _flat(_plain(taken))
    for name in dict.fromkeys([*now, *before]):
        if name not in _FIXED_LATER and now.get(name) != before.get(name):
            raise InputError(
                f"{name}: the run was begun with {before.get(name)!r}, not {now.get(name)!r}; go on with --resume and "
                "the settings it was begun with, or begin a new run in another folder"
            )
    return taken


def _plain(request: RunRequest) -> dict[str, Any]:
    """As JSON has it."""
    fields: dict[str, Any] = asdict(request)  # type: ignore[call-overload]
    plain = {name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in fields.items()}
    loaded: dict[str, Any] = json.loads(json.dumps(plain))
    return loaded


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """One value a name, `optimizer.rate` and the like."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        inner = _PREFIXES.get(name, f"{name}.") if not prefix else f"{prefix}{name}."
        found |= _flat(value, inner) if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
