"""The engine: a loaded model and all that it can be asked, on the device that there is.

What is asked is a program (`infer/programs.py`); `infer/pipeline.py` runs it over inputs of any number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from bertsmith.bundle.embedding import refuse_unfit
from bertsmith.bundle.resolve import load_bundle
from bertsmith.errors import InputError, TokenizerError
from bertsmith.infer.pipeline import run_program
from bertsmith.infer.programs import (
    AttentionProgram,
    EmbedProgram,
    FillProgram,
    NeighboursProgram,
    TaskProgram,
    TokenProgram,
)
from bertsmith.model.linear import prepare_linear_layers
from bertsmith.model.memory import keep_freed_memory
from bertsmith.model.pooling import Pooling
from bertsmith.settings import validated
from bertsmith.tasks.loading import change_task, does_task, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bertsmith.bundle.folder import Bundle
    from bertsmith.infer.programs import Candidate, Gap, Program, TextLike
    from bertsmith.model.pooling import Pool
    from bertsmith.tasks.task import Prediction, Task
    from bertsmith.vocab.tokenizer import Encoding, Tokenizer

__all__ = ["Attention", "Engine", "load"]

Input = TypeVar("Input")
Output = TypeVar("Output")


class Attention(NamedTuple):
    """What every head looks at: `maps[layer, head, i, j]` is how much token i looks at token j."""

    encoding: Encoding
    maps: np.ndarray  # (layers, heads, n, n)


class Engine:
    """A loaded model. On Linux it raises the allocator's thresholds of the process (`keep_freed_memory`).

    `options` change those of its task, as `predict --set` does.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        name: str = "this model",
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        int8: bool = False,
    ) -> None:
        if bundle.tokenizer is None:
            raise TokenizerError(f"{name}: has no tokenizer: neither tokenizer.json nor vocab.txt is in its folder")
        keep_freed_memory()
        self.name = name
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() and not int8 else "cpu"))
        self.tokenizer: Tokenizer = bundle.tokenizer
        self.max_length = bundle.max_length
        self.pooling = bundle.pooling or Pooling()
        self._unknown_steps = bundle.unknown_steps
        self.whitening = None if bundle.whitening is None else bundle.whitening.to(self.device)
        self._task: Task[Any] | None = None
        if does_task(bundle) or options:
            self._task = change_task(name, task_of(name, bundle), bundle.model, options or {})
        self.model = bundle.model.to(self.device).eval()
        self.int8 = int8
        if int8:
            from bertsmith.model.eight_bit import quantize

            quantize(self.model)
        elif self.device.type == "cpu":
            prepare_linear_layers(self.model)

    @property
    def task(self) -> Task[Any]:
        """What it was fine-tuned for."""
        if self._task is None:
            raise InputError(
                f"{self.name}: is a model of kind '{self.model.kind}', which does no task yet; see bertsmith finetune"
            )
        return self._task

    @property
    def kind_of_task(self) -> str | None:
        """The kind of its task, where it has one."""
        return None if self._task is None else self._task.kind

    def embed(
        self,
        texts: Iterable[TextLike],
        *,
        pool: Pool | None = None,
        layers: Sequence[int] | None = None,
        normalize: bool | None = None,
        whiten: bool | None = None,
        max_length: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> np.ndarray:
        """One float32 vector a text, or a pair of texts, (N, D). `progress` is told how many each batch finished.

        What is not said is as the model folder has it: mean, without scaling, where it says nothing.
        """
        program = self.embedder(pool=pool, layers=layers, normalize=normalize, whiten=whiten, max_length=max_length)
        found = run_program(program, _not_one(texts), device=self.device, progress=progress)
        vectors = [vector for _, vector in found]
        return np.stack(vectors) if vectors else np.zeros((0, program.width), np.float32)

    def embedder(
        self,
        *,
        pool: Pool | None = None,
        layers: Sequence[int] | None = None,
        normalize: bool | None = None,
        whiten: bool | None = None,
        max_length: int | None = None,
    ) -> EmbedProgram:
        """The program behind `embed`."""
        if self._unknown_steps is not None and pool is None:
            raise InputError(f"{self._unknown_steps}; name a pooling (--pool mean) to take the encoder's own vectors")
        told: dict[str, Any] = {
            "pool": pool,
            "layers": None if layers is None else tuple(layers),
            "normalize": normalize,
        }
        changes = {name: value for name, value in told.items() if value is not None}
        if "pool" in changes and "layers" not in changes:
            changes["layers"] = None
        pooling = validated(Pooling, {**self.pooling.model_dump(), **changes})
        whitening = self.whitening if whiten is not False else None
        if whiten and whitening is None:
            raise InputError(f"{self.name}: has no whitening; see bertsmith whiten")
        if whitening is not None and not pooling.reads_as(self.pooling, self.model.config.num_hidden_layers):
            raise InputError(
                f"{self.name}: its whitening is for pool {self.pooling.pool}; leave pool and layers out, or the "
                "whitening (--no-whiten, whiten=False)"
            )
        refuse_unfit(pooling, whitening, self.model.config)
        return EmbedProgram(self.model, self.tokenizer, self._checked_length(max_length), pooling, whitening)

    def tokens(
        self, texts: Iterable[TextLike], *, layers: Sequence[int] = (-1,), max_length: int | None = None
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """For each text its pieces and their rows, (n, layers, H); 0 is the embeddings, -1 the last layer."""
        return self._results(self.tokener(layers, max_length=max_length), texts)

    def tokener(self, layers: Sequence[int] = (-1,), *, max_length: int | None = None) -> TokenProgram:
        """The program behind `tokens`."""
        validated(Pooling, {"layers": tuple(layers)}).numbers(self.model.config.num_hidden_layers)
        return TokenProgram(self.model, self.tokenizer, self._checked_length(max_length), tuple(layers))

    def fill(self, text: str, *, top: int = 5) -> list[list[Candidate]]:
        """For each `[MASK]` of a text, in order, the `top` likeliest pieces with their probabilities."""
        (gaps,) = self.fill_many([text], top=top)
        return [gap.candidates for gap in gaps]

    def fill_many(self, texts: Iterable[str], *, top: int = 5) -> Iterator[list[Gap]]:
        """The gaps of each text."""
        return self._results(self.filler(top), texts)

    def filler(self, top: int = 5) -> FillProgram:
        """The program behind `fill`."""
        return FillProgram(self.model, self.tokenizer, self.max_length, top)

    def neighbours(self, words: Iterable[str], *, top: int = 10) -> list[list[Candidate]]:
        """For each word the pieces whose vectors are nearest to its own in the table that the model begins with."""
        return list(self._results(self.finder(top), _not_one(words)))

    def finder(self, top: int = 10) -> NeighboursProgram:
        """The program behind `neighbours`."""
        return NeighboursProgram(self.model, self.tokenizer, top)

    def predict(self, examples: Iterable[Any]) -> Iterator[Prediction]:
        """What the model says of examples of its task (`engine.task.example(…)` makes one), in their order."""
        return self._results(self.predictor(), examples)

    def predictor(self) -> TaskProgram:
        """The program behind `predict`."""
        return TaskProgram(self.task, self.model, self.tokenizer)

    def classify(self, texts: Iterable[str | tuple[str, str]]) -> list[Prediction]:
        """The class of each text, or pair of texts; numbers, from a model that was trained for those."""
        self._must_do("classify", "regress")
        return list(self.predict(self.task.example(*_text_or_pair(text)) for text in _not_one(texts)))

    def tag(self, texts: Iterable[str]) -> list[Prediction]:
        """The tags and entities of each text."""
        self._must_do("tag")
        return list(self.predict(self.task.example(text=text, document=n) for n, text in enumerate(_not_one(texts))))

    def answer(self, question: str, context: str) -> Prediction:
        """Where a context answers a question."""
        self._must_do("answer")
        (found,) = self.predict([self.task.example(question=question, context=context)])
        return found

    def choose(self, text: str, choices: Sequence[str]) -> Prediction:
        """Which of several texts goes on from a text."""
        self._must_do("choose")
        (found,) = self.predict([self.task.example(text=text, choices=list(_not_one(choices)))])
        return found

    def attention(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> Attention:
        """What every head looks at, in a text or a pair of texts."""
        program = AttentionProgram(self.model, self.tokenizer, self._checked_length(max_length))
        (maps,) = self._results(program, [text if pair is None else (text, pair)])
        return Attention(self.tokenizer.encode(text, pair, max_length=program.max_length), maps)

    def _results(self, program: Program[Input, Output], inputs: Iterable[Input]) -> Iterator[Output]:
        return (result for _, result in run_program(program, _not_one(inputs), device=self.device))

    def _must_do(self, *kinds: str) -> None:
        if self.task.kind not in kinds:
            raise InputError(f"{self.name}: was fine-tuned to {self.task.kind}, not to {' or '.join(kinds)}")

    def _checked_length(self, max_length: int | None) -> int:
        positions = self.model.config.max_position_embeddings
        if max_length is None:
            return self.max_length
        if max_length > positions:
            raise InputError(f"max_length {max_length} is more than the model's {positions} positions")
        return max_length


def _not_one(texts: Iterable[Input]) -> Iterable[Input]:
    """A text is an iterable of its characters, which nobody means."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, not one text")
    return texts


def _text_or_pair(given: Any) -> Sequence[str]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, tuple | list) and len(given) == 2:
        return given
    raise InputError(f"expected a text or a pair of texts, found {given!r:.60}")


def load(
    name: str, *, device: str | None = None, options: Mapping[str, Any] | None = None, int8: bool = False
) -> Engine:
    """Open a model by folder, local name or hub name."""
    return Engine(load_bundle(name), name=name, device=device, options=options, int8=int8)
