"""SQuAD's JSON, 1.1 and 2.0, and CMRC's, which is the same: articles, paragraphs, questions, answers.

JSON as a whole has no lines; where something is wrong the file is read a second time, slowly, to say on which line.
"""

from __future__ import annotations

import json
import json.decoder
import json.scanner
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.errors import DataError
from bertsmith.tasks.tables import Place, has_lone_surrogate, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Answer", "Question", "read_squad"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A text and where in the context it begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context; `answers` is empty where there is none, and None where nobody has said."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None


def read_squad(name: str, *, answered: bool = True) -> Iterator[Question]:
    """The questions of a file. An answer that does not stand where it says is an error, if answers are looked at."""
    text = "".join(line for _, line in numbered_lines(name))
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        lines = error.msg == "Extra data" and error.lineno > 1
        remedy = "JSON lines go into a file that ends in .jsonl" if lines else "correct the file"
        raise Place(name, error.lineno).error(f"is not JSON ({error.msg}); {remedy}") from error
    except RecursionError as error:
        raise Place(name, 1).error("is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise Place(name, 1).error(f"is not JSON ({error})") from error
    file = _File(name, text)
    found = False
    seen: set[str] = set()
    for a, article in enumerate(file.items(content, ("data",))):
        for p, paragraph in enumerate(file.items(article, ("data", a, "paragraphs"))):
            path = ("data", a, "paragraphs", p)
            context = file.text(paragraph, path, "context")
            for q, entry in enumerate(file.items(paragraph, (*path, "qas"))):
                found = True
                question = file.question(entry, (*path, "qas", q), context, answered=answered)
                if question.id in seen:
                    raise file.error(
                        (*path, "qas", q),
                        f"a second question with the id {question.id!r:.60}; give it another, or remove it",
                    )
                seen.add(question.id)
                yield question
    if not found:
        raise Place(name, 1).error("holds no question")


class _File:
    """A file's content, and the lines of its parts."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.source = name, text
        self._one_line = "\n" not in text.strip()

    def items(self, parent: Any, path: tuple[Any, ...]) -> list[Any]:
        """The list under the last key of a path."""
        if not isinstance(parent, dict) or not isinstance(parent.get(path[-1]), list):
            raise self.error(path[:-1], f"no list {path[-1]!r}; expected data, paragraphs and qas as SQuAD has them")
        return parent[path[-1]]

    def text(self, parent: Any, path: tuple[Any, ...], key: str) -> str:
        """The text under a key."""
        if not isinstance(parent, dict) or not isinstance(parent.get(key), str):
            raise self.error(path, f"{key!r} is missing, or is not text")
        if has_lone_surrogate(parent[key]):
            raise self.error(path, f"{key!r} holds half a surrogate pair, which is no character; correct it")
        return parent[key]

    def question(self, entry: Any, path: tuple[Any, ...], context: str, *, answered: bool) -> Question:
        """One question, checked."""
        question = self.text(entry, path, "question")
        if not question.strip():
            raise self.error(path, "the question is empty; remove it")
        name = str(path) if entry.get("id") is None else str(entry["id"])
        impossible = entry.get("is_impossible", False)
        if not isinstance(impossible, bool | None):
            raise self.error(path, f"is_impossible is {impossible!r:.40}, neither true nor false; correct it")
        if not answered:  # what stands there may be made up, as in test files
            return Question(name, question, context, None)
        if impossible and "answers" not in entry:
            return Question(name, question, context, ())
        if "answers" not in entry:
            raise self.error(path, "'answers' is missing; a question that has none says \"is_impossible\": true")
        answers = tuple(self._answer(each, path, context) for each in self.items(entry, (*path, "answers")))
        if impossible:
            answers = ()
        elif not answers:
            raise self.error(path, 'no answer; if it has none, say "is_impossible": true')
        return Question(name, question, context, answers)

    def _answer(self, entry: Any, path: tuple[Any, ...], context: str) -> Answer:
        text = self.text(entry, path, "text")
        start = entry.get("answer_start")
        if not isinstance(start, int) or isinstance(start, bool):
            raise self.error(path, f"answer_start is {start!r:.40}, not a whole number; correct it")
        if not text.strip():
            raise self.error(path, 'an answer is empty; remove it, and if there is no other say "is_impossible": true')
        if start < 0 or context[start : start + len(text)] != text:
            there = context.find(text)
            remedy = f"it stands at {there}" if there >= 0 else "it is not in the context at all; remove or correct it"
            raise self.error(path, f"the answer {text!r:.60} is not at answer_start {start}: {remedy}")
        return Answer(text, start)

    def error(self, path: tuple[Any, ...], what: str) -> DataError:
        """An error that begins with file and line."""
        shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
        return Place(self.name, self.line(path)).error(f"{shown}: {what}" if shown else what)

    def line(self, path: tuple[Any, ...]) -> int:
        """The line on which the object at a path begins."""
        if self._one_line:
            return self.source[: len(self.source) - len(self.source.lstrip())].count("\n") + 1
        try:
            value: Any = _PlacedDecoder().decode(self.source)
        except RecursionError:  # which is deeper in the slow form
            return 1
        start = 0
        for key in path:
            value = value[key]
            start = value.start if isinstance(value, _Placed) else start
        return self.source.count("\n", 0, start) + 1


class _Placed(dict[str, Any]):
    """An object that knows where it began."""

    start = 0


class _PlacedDecoder(json.JSONDecoder):
    """Python's own decoder in its slow form, whose parts can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_object = self._parse_placed
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _parse_placed(self, state: tuple[str, int], *rest: Any) -> tuple[_Placed, int]:
        value, end = json.decoder.JSONObject(state, *rest)  # type: ignore[attr-defined]
        placed = _Placed(value)
        placed.start = state[1] - 1
        return placed, end
