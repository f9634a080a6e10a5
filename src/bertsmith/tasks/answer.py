"""`answer`: where in a context the answer to a question stands, or that it has none.

A context longer than the model is read in windows. `stride` is the step from one window to the next, as in the
original; `transformers` calls the overlap a stride (there, an overlap of 128 is a step of the window's room less 128).
A window without the answer learns (0, 0), the place of `[CLS]`. An answer begins in the window where its first piece
has most context: the `num_best` best of those beginnings are combined with as many ends (the original takes the best of
all tokens first, then leaves out what cannot be, and may find fewer). The answer is "" where the score of `[CLS]`, the
least over the windows, is above the best answer's by more than `null_threshold`, which is set on the dev file.

Files: SQuAD's JSON (`.json`), or a table with `question`, `context` and, for training, `answer` and `start`,
or `answers` as the hub's data sets have them.
"""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from bertsmith.model.losses import span_loss
from bertsmith.tasks.answer_scores import best_threshold, normalise, score_answers, score_chinese, without_marks
from bertsmith.tasks.squad import Answer, Question, read_squad
from bertsmith.tasks.tables import Column, Row, read_rows, written_out
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, Task, TaskBatch, TaskOptions, TooLong, packed_ids
from bertsmith.tasks.windows import cut_windows, most_context

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from torch import nn

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["AnswerOptions", "AnswerTask"]

Count = Annotated[int, Field(ge=1)]
_LISTED = "answers"


class AnswerOptions(TaskOptions):
    """Lengths in pieces, as the paper has them. `unanswerable`: whether a question may have no answer (SQuAD 2.0).

    `null_threshold` is what a dev file makes of it, where none is given.
    """

    max_length: Annotated[int, Field(ge=8)] = 384
    stride: Count = 128
    max_question: Count = 64
    max_answer: Count = 30
    num_best: Count = 20
    unanswerable: bool = False
    null_threshold: float | None = None
    language: Literal["en", "zh"] = "en"


@dataclass(frozen=True, slots=True)
class _Context:
    """A context in pieces."""

    ids: np.ndarray  # (n,)
    offsets: np.ndarray  # (n, 2) characters


class _Window(NamedTuple):
    """What decoding must know of a window."""

    question: int
    begin: int  # of the context, in the sequence
    offsets: np.ndarray  # (n, 2) characters of its pieces
    owned: np.ndarray  # (n,) whether a piece has its most context here


class AnswerTask(Task[Question]):
    """Spans of a context."""

    kind = "answer"
    head = "span"
    metrics = ("f1", "exact_match")
    fields = ("question", "context", "answer", "start", "id")
    Options = AnswerOptions
    options: AnswerOptions
    num_outputs = 2
    smooths = False

    def read(self, name: str, *, labelled: bool = True) -> Iterator[Question]:
        """The questions of a file."""
        if Path(name).suffix.lower() == ".json":
            return read_squad(name, answered=labelled)
        may_be_none = self.options.unanswerable
        return _read_table(name, self.options.columns, labelled=labelled, may_be_none=may_be_none)

    def example(self, question: str, context: str) -> Question:
        """A question and the text that may answer it."""
        return Question("", question, context, None)

    def remarks(self, examples: Sequence[Question]) -> list[str]:
        """Questions without an answer where one is always given."""
        count = sum(not example.answers for example in examples)
        if not count or self.options.unanswerable:
            return []
        return [f"{count:,} of {len(examples):,} questions have no answer, but one is always given; see --unanswerable"]

    def encode(self, examples: Sequence[Question], tokenizer: Tokenizer) -> list[Item]:
        """One item a window of a question's context."""
        contexts = _encode_contexts({example.context for example in examples}, tokenizer)
        questions = tokenizer.encode_ids([example.question for example in examples])
        items: list[Item] = []
        for number, (example, ids) in enumerate(zip(examples, questions, strict=True)):
            question = np.array(ids[1:-1][: self._longest_question], np.int32)
            items.extend(self._windows(number, example, question, contexts[example.context], tokenizer))
        return items

    @property
    def _longest_question(self) -> int:
        return min(self.options.max_question, self.options.max_length - 4)

    def cuts(self, examples: Sequence[Question], tokenizer: Tokenizer) -> bool:
        """Whether a question is too long; of a context all is read."""
        questions = tokenizer.encode_ids([example.question for example in examples])
        return any(len(ids) - 2 > self._longest_question for ids in questions)

    def count_cut(self, examples: Sequence[Question], items: Sequence[Item], tokenizer: Tokenizer) -> int:
        """Only a question that fills its room can have been."""
        full = {item.notes.question for item in items if item.notes.begin - 2 == self._longest_question}
        return sum(self.cuts([examples[number]], tokenizer) for number in full)

    @property
    def too_long(self) -> TooLong:
        """See `Task`."""
        option = "max_question=…" if self.options.max_question == self._longest_question else "max_length=…"
        what = f"are questions of more than {self._longest_question} pieces, and are cut"
        return TooLong(what, f"--set task.{option}", f"--set {option}")

    def _windows(
        self, number: int, example: Question, question: np.ndarray, context: _Context, tokenizer: Tokenizer
    ) -> Iterator[Item]:
        begin = len(question) + 2
        room = self.options.max_length - begin - 1
        ends = np.arange(len(context.ids) + 1)
        windows = cut_windows(ends, room, self.options.stride) or [(0, 0)]
        owner = most_context(windows, ends)
        span = None if example.answers is None else _pieces_of(example.answers, context.offsets)
        for place, (start, stop) in enumerate(windows):
            ids, types = packed_ids(tokenizer, question, context.ids[start:stop])
            target = None
            if span is not None:
                inside = start <= span[0] and span[1] < stop and span[0] <= span[1]
                target = np.array([[begin - start + span[0], begin - start + span[1]] if inside else [0, 0]])
            notes = _Window(number, begin, context.offsets[start:stop], owner[start:stop] == place)
            yield Item((ids,), (types,), target, notes=notes)

    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """(T, 2)."""
        return model(batch.input_ids, batch.token_type_ids, batch.lengths)

    def num_read(self, length: int) -> int:
        """All."""
        return length

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """The mean of two cross-entropies for each window."""
        del criterion
        assert batch.targets is not None
        return span_loss(logits.float(), batch.lengths, batch.targets, reduction="sum") / 2

    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """(n, 2) the logits of a window's tokens, as first and as last of an answer."""
        return np.split(logits.float().cpu().numpy(), np.cumsum(batch.lengths.numpy())[:-1])

    def decode(
        self, examples: Sequence[Question], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """The best answers of each question, from all windows of its context."""
        null = [np.inf] * len(examples)
        spans: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        for item, logits in zip(items, outputs, strict=True):
            window: _Window = item.notes
            null[window.question] = min(null[window.question], float(logits[0].sum()))
            spans[window.question].extend(self._best_spans(window, logits, examples[window.question].context))
        return [
            self._predict(example, sorted(found, reverse=True), none)
            for example, found, none in zip(examples, spans, null, strict=True)
        ]

    def _best_spans(self, window: _Window, logits: np.ndarray, context: str) -> list[tuple[float, int, int]]:
        """(score, start, end) in characters, of a window's best spans; of those with the same text, the best."""
        count = len(window.offsets)
        inner = logits[window.begin : window.begin + count].astype(np.float64)
        firsts = np.argsort(-np.where(window.owned, inner[:, 0], -np.inf), kind="stable")[: self.options.num_best]
        firsts = firsts[window.owned[firsts]]
        lasts = np.argsort(-inner[:, 1], kind="stable")[: self.options.num_best]
        first, last = (grid.ravel() for grid in np.meshgrid(firsts, lasts, indexing="ij"))
        fits = (last >= first) & (last - first < self.options.max_answer)
        first, last = first[fits], last[fits]
        totals = inner[first, 0] + inner[last, 1]
        starts, stops = window.offsets[first, 0].tolist(), window.offsets[last, 1].tolist()
        found: dict[str, tuple[float, int, int]] = {}
        for place in np.argsort(-totals, kind="stable").tolist():
            start, stop = starts[place], stops[place]
            found.setdefault(context[start:stop], (float(totals[place]), start, stop))
            if len(found) == self.options.num_best:
                break
        return list(found.values())

    def _predict(self, example: Question, spans: list[tuple[float, int, int]], null: float) -> Prediction:
        chosen: dict[str, tuple[float, int, int]] = {}
        for span in spans:
            chosen.setdefault(example.context[span[1] : span[2]], span)
        best = list(chosen.items())[: self.options.num_best]
        totals = np.array([total for _, (total, _, _) in best] + ([null] if self.options.unanswerable else []))
        shares = np.exp(totals - totals.max()) / np.exp(totals - totals.max()).sum() if len(totals) else totals
        candidates = [
            {"text": text, "start": start, "end": end, "score": float(share)}
            for (text, (_, start, end)), share in zip(best, shares, strict=False)
        ]
        margin = null - best[0][1][0] if best else float("inf")
        found: Prediction = {"id": example.id, "null_margin": min(margin, 1e9), "candidates": candidates}
        return {"answer": self.answer_of(found), **found}

    @property
    def threshold(self) -> float:
        """How far no answer must be ahead to be the answer."""
        return self.options.null_threshold or 0.0

    def answer_of(self, prediction: Prediction) -> str:
        """The best candidate, or "" where none is the better answer."""
        none = self.options.unanswerable and prediction["null_margin"] > self.threshold
        return "" if none else self._best_text(prediction)

    def _best_text(self, prediction: Prediction) -> str:
        """The best candidate; one of punctuation alone is as good as none, where none is allowed."""
        text = str(prediction["candidates"][0]["text"]) if prediction["candidates"] else ""
        says_something = without_marks(text) if self.options.language == "zh" else normalise(text)
        return text if says_something or not self.options.unanswerable else ""

    def score(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> Scores:
        """The official exact match and F1; of those with an answer and of those without, where there are both."""
        golds = _golds(examples)
        guesses = {prediction["id"]: self.answer_of(prediction) for prediction in predictions}
        found = asdict((score_chinese if self.options.language == "zh" else score_answers)(golds, guesses))
        return {name: score for name, score in found.items() if score is not None and not name.startswith("num_")}

    def tune(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> AnswerTask:
        """The threshold that gives the best score, unless one is given."""
        if not self.options.unanswerable or self.options.null_threshold is not None:
            return self
        if all(example.answers for example in examples):
            return self
        best = {prediction["id"]: self._best_text(prediction) for prediction in predictions}
        margins = {prediction["id"]: prediction["null_margin"] for prediction in predictions}
        measure: Literal["exact", "f1"] = "exact" if self.options.metric == "exact_match" else "f1"
        chinese = self.options.language == "zh"
        found = best_threshold(_golds(examples), best, margins, measure=measure, chinese=chinese)
        return self.changed(null_threshold=found.threshold)


def _golds(examples: Sequence[Question]) -> dict[str, list[str]]:
    return {example.id: [answer.text for answer in example.answers or ()] for example in examples}


def _encode_contexts(contexts: set[str], tokenizer: Tokenizer) -> dict[str, _Context]:
    """Each distinct context once."""
    listed = sorted(contexts)
    found = {}
    for context, encoding in zip(listed, tokenizer.encode_batch(listed), strict=True):
        offsets = np.array(encoding.offsets[1:-1], np.int64).reshape(-1, 2)
        if len(offsets) and not context.isascii():
            _take_marks(context, offsets)
        found[context] = _Context(np.array(encoding.ids[1:-1], np.int32), offsets)
    return found


def _take_marks(context: str, offsets: np.ndarray) -> None:
    """Let pieces end behind the accents on their last letter, which an uncased tokenizer drops; in place."""
    limits = [*offsets[1:, 0].tolist(), len(context)]
    for number, limit in enumerate(limits):
        end = int(offsets[number, 1])
        while end < limit and unicodedata.category(context[end])[0] == "M":
            end += 1
        offsets[number, 1] = end


def _pieces_of(answers: Sequence[Answer], offsets: np.ndarray) -> tuple[int, int]:
    """The first and last piece of the first answer; nowhere, where there is none."""
    if not answers:
        return 1, 0
    start, end = answers[0].start, answers[0].start + len(answers[0].text)
    return int(np.searchsorted(offsets[:, 1], start, side="right")), int(np.searchsorted(offsets[:, 0], end)) - 1


def _read_table(name: str, columns: dict[str, Column], *, labelled: bool, may_be_none: bool) -> Iterator[Question]:
    seen: set[str] = set()
    read = [column for field, column in columns.items() if labelled or field not in ("answer", "start")]
    for row in read_rows(name, read):
        question, context = row.text(columns.get("question", "question")), row.text(columns.get("context", "context"))
        for what, text in (("question", question), ("context", context)):
            if not text.strip():
                raise row.place.error(f"the {what} is empty; write it, or remove the row")
        column = columns.get("id", "id")
        given = row.get(column) if row.has(column) else None
        number = f"line-{row.place.line}" if given is None else str(given)
        if number in seen:
            raise row.place.error(f"a second question with the id {number!r:.60}; correct it or remove the row")
        seen.add(number)
        answers = _answers(row, columns, context, may_be_none=may_be_none) if labelled else None
        yield Question(number, question, context, answers)


def _answers(row: Row, columns: dict[str, Column], context: str, *, may_be_none: bool) -> tuple[Answer, ...]:
    """The answers of a row; none where it is empty, or has no list of them."""
    column = columns.get("answer", "answer")
    if not row.has(column) and row.has(_LISTED):
        return tuple(_answer(row, text, start, context) for text, start in _listed(row))
    if may_be_none and row.get(column) is None:  # a column with gaps
        return ()
    answer = row.text(column)
    return (_answer(row, answer, row.get(columns.get("start", "start")), context),) if answer else ()


def _listed(row: Row) -> list[tuple[str, Any]]:
    """Answers and their places as the hub's data sets have SQuAD's: `{"text": […], "answer_start": […]}`."""
    given = written_out(row.get(_LISTED))
    texts, starts = (given.get(name) if isinstance(given, dict) else None for name in ("text", "answer_start"))
    if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
        raise row.place.error(f'expected {_LISTED} as {{"text": […], "answer_start": […]}}, found {given!r:.60}')
    for text in texts:
        if not isinstance(text, str) or not text:
            raise row.place.error(f"an answer is {text!r:.60}, not text; correct it or remove the row")
    return list(zip(texts, starts, strict=True))


def _answer(row: Row, answer: str, start: Any, context: str) -> Answer:
    """An answer that stands where it is said to."""
    shown = str(start).strip().removesuffix(".0")  # of a column with gaps
    begin = int(shown) if shown.isdecimal() and len(shown) < 18 else -1  # more digits are no place in a text
    if begin < 0 or context[begin : begin + len(answer)] != answer:
        there = context.find(answer)
        remedy = f"it stands at {there}" if there >= 0 else "it is not in the context at all; remove or correct it"
        raise row.place.error(f"the answer {answer!r:.60} is not at character {start!r:.20} of its context: {remedy}")
    return Answer(answer, begin)
