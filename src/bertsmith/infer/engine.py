"""The engine: texts in, vectors or candidates out, in packed batches of like lengths.

Every text is tokenised once, sequences are sorted by length and cut into batches by tokens, and each
batch goes through the encoder without padding. Results come in the order of the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bertsmith.bundle.resolve import load_bundle
from bertsmith.data.batches import PackedBatch, by_token_budget
from bertsmith.errors import InputError, TokenizerError
from bertsmith.infer.embed import embed_batch
from bertsmith.infer.fill import fill_text
from bertsmith.model.memory import keep_freed_memory, store_by_columns
from bertsmith.model.streams import run_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from bertsmith.bundle.folder import Bundle
    from bertsmith.infer.embed import Pool
    from bertsmith.infer.fill import Candidate
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Engine", "load"]

# Tokens in a batch: enough to keep the cores busy, few enough for the activations to stay in cache.
_CPU_BUDGET = 1536
_GPU_BUDGET = 32768
# Texts are tokenised in pieces of this many, so that memory does not grow with the input.
_TEXTS_AT_ONCE = 8192


class Engine:
    """A loaded model. On Linux it raises the allocator's thresholds of the process (`keep_freed_memory`)."""

    def __init__(self, bundle: Bundle, *, device: str | None = None) -> None:
        if bundle.tokenizer is None:
            raise TokenizerError("this model has no tokenizer: neither tokenizer.json nor vocab.txt is in its folder")
        keep_freed_memory()
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = bundle.model.to(self.device).eval()
        if self.device.type == "cpu":
            store_by_columns(self.model)
        self.tokenizer: Tokenizer = bundle.tokenizer
        self.max_length = bundle.max_length

    def embed(
        self,
        texts: Sequence[str],
        *,
        pool: Pool = "mean",
        normalize: bool = False,
        max_length: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> np.ndarray:
        """One float32 vector a text, (N, H). `progress` is told how many texts each batch finished."""
        vectors = torch.empty(len(texts), self.model.config.hidden_size)

        def run(job: tuple[list[int], PackedBatch]) -> tuple[list[int], torch.Tensor]:
            with torch.inference_mode():
                return job[0], embed_batch(self.model.encoder, job[1], pool).cpu()

        batches = self._batches(texts, max_length)
        for numbers, rows in run_streams(run, batches) if self.device.type == "cpu" else map(run, batches):
            vectors[numbers] = rows
            if progress is not None:
                progress(len(numbers))
        if normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return vectors.numpy()

    def fill(self, text: str, *, top: int = 5) -> list[list[Candidate]]:
        """For each `[MASK]` of a text, in order, the `top` likeliest pieces with their probabilities."""
        return fill_text(self.model, self.tokenizer, text, top=top, max_length=self.max_length)

    def _batches(self, texts: Sequence[str], max_length: int | None) -> Iterator[tuple[list[int], PackedBatch]]:
        """Batches with the numbers of their texts."""
        length = self._checked_length(max_length)
        on_cpu = self.device.type == "cpu"
        budget, streams = (_CPU_BUDGET, torch.get_num_threads()) if on_cpu else (_GPU_BUDGET, 1)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            ids = self.tokenizer.encode_ids(texts[start : start + _TEXTS_AT_ONCE], max_length=length)
            for chosen in by_token_budget([len(sequence) for sequence in ids], budget, streams=streams):
                batch = PackedBatch.of([ids[number] for number in chosen])
                yield [start + number for number in chosen], batch.to(self.device)

    def _checked_length(self, max_length: int | None) -> int:
        positions = self.model.config.max_position_embeddings
        if max_length is None:
            return self.max_length
        if max_length > positions:
            raise InputError(f"max_length {max_length} is more than the model's {positions} positions")
        return max_length


def load(name: str, *, device: str | None = None) -> Engine:
    """Open a model by folder, local name or hub name."""
    return Engine(load_bundle(name), device=device)
