"""The peer of pre-training: `transformers`' models, and its `run_mlm` way of training them.

Full-length text (documents joined, cut into stretches of 126 tokens between `[CLS]` and `[SEP]`), 32 of them a batch,
new masks on every pass (15% of the pieces, 80/10/10), AdamW (torch's fused one, no decay, as the script's defaults have
it), the gradient clipped to 1, the rate up for 1% of the steps and then down to zero in a straight line, dropout 0.1.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bertsmith.bundle.folder import read_bundle
from bertsmith.config import BertConfig, named_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.data.shards import ShardSet
    from bertsmith.model.heads import BertModel
    from bertsmith.vocab.tokenizer import Tokenizer

LENGTH = 128
BATCH = 32


def blocks(shards: ShardSet, tokenizer: Tokenizer) -> np.ndarray:
    """(N, 128) the whole split as full-length text."""
    text = np.concatenate([np.asarray(shards.shard(number).tokens) for number in range(shards.num_shards)])
    inner = LENGTH - 2
    rows = text[: len(text) // inner * inner].reshape(-1, inner).astype(np.int64)
    ends = np.ones((len(rows), 1), np.int64)
    return np.hstack((tokenizer.cls_id * ends, rows, tokenizer.sep_id * ends))


def batches(rows: np.ndarray, tokenizer: Tokenizer, seed: int) -> Iterator[dict[str, torch.Tensor]]:
    """Batches without end, masked as `DataCollatorForLanguageModeling` masks them."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            ids = rows[order[start : start + BATCH]].copy()
            chosen = rng.random(ids.shape) < 0.15
            chosen[:, [0, -1]] = False
            labels = np.where(chosen, ids, -100)
            fate = rng.random(ids.shape)
            ids[chosen & (fate < 0.8)] = tokenizer.mask_id
            swapped = chosen & (fate >= 0.9)
            ids[swapped] = rng.integers(0, tokenizer.vocab_size, int(swapped.sum()))
            yield {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def hf_config(config: BertConfig, attention: str) -> Any:
    """The same model for `transformers`."""
    import json

    from transformers import BertConfig as TheirConfig

    content = json.loads(config.to_json())
    return TheirConfig(**{key: value for key, value in content.items() if key != "architectures"},
                       attn_implementation=attention)  # fmt: skip


class MaskedLMRun:
    """A training run of `BertForMaskedLM`, step by step."""

    def __init__(
        self,
        size: str,
        shards: ShardSet,
        tokenizer: Tokenizer,
        *,
        attention: str = "sdpa",
        peak: float = 1e-3,
        steps: int = 1000,
        seed: int = 0,
    ) -> None:
        from transformers import BertForMaskedLM, get_linear_schedule_with_warmup

        torch.manual_seed(seed)
        config = named_size(size, vocab_size=tokenizer.vocab_size)
        self.model = BertForMaskedLM(hf_config(config, attention)).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=peak, weight_decay=0.0, fused=True)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, max(1, steps // 100), steps)
        self.batches = batches(blocks(shards, tokenizer), tokenizer, seed)
        self.tokenizer = tokenizer

    def step(self) -> float:
        """One step; gives its seconds."""
        begun = time.perf_counter()
        loss = self.model(**next(self.batches)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begun

    def as_ours(self) -> BertModel:
        """A copy of its model as ours, through a folder on disk."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            return read_bundle(Path(folder), "mlm").model.eval()
