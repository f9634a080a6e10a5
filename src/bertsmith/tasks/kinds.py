"""The kinds of task, by name. A new kind is a file of its own, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError
from bertsmith.tasks.answer import AnswerTask
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tag import Tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bertsmith.tasks.task import Task

__all__ = ["KINDS", "make_task"]

KINDS: dict[str, type[Task[Any]]] = {kind.kind: kind for kind in (Classify, Regress, Choose, Tag, AnswerTask)}


def make_task(kind: str, options: Mapping[str, Any], labels: Sequence[str] = ()) -> Task[Any]:
    """A task of a kind, from plain values."""
    if kind not in KINDS:
        raise ConfigError(f"task: {kind!r} is not one of {', '.join(KINDS)}")
    return KINDS[kind].of(options, labels)
