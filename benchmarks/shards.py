"""From raw text to tokens on disk, two processes, against `datasets` with `transformers`' fast tokenizer.

The peer is what people write: `load_dataset("json")`, then `map(batched=True, num_proc=2)` with the same sentence
splitter and the same tokenizer. Both begin with the JSON file and end with tokens on disk; the tokens are compared.
Beside them, the Rust tokenizer alone: `encode_batch_fast` on the sentences, already split and in memory, two threads,
results thrown away. Needs ../shared/data.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import harness
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.shards import ShardSet
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.text.corpus import Corpus, CorpusOptions
from bertsmith.text.sentences import SentenceSplitter

if TYPE_CHECKING:
    from collections.abc import Callable

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
# Each corpus with a real tokenizer of its language.
SETS = {"en-web": "minilm", "zh-web": "m3e-small"}
WORKERS = 2


class Side:
    """One corpus, three ways."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.path = CORPORA / f"{name}.jsonl"
        self.model = SETS[name]
        self.tokenizer = open_tokenizer(self.model)
        self.scratch = scratch / name
        self.scratch.mkdir()
        splitter = SentenceSplitter()
        documents = Corpus([str(self.path)], CorpusOptions(min_chars=1), scratch)
        self.sentences = [sentence for document in documents for sentence in splitter.split(document.text or "")]

    def ours(self) -> np.ndarray:
        """Build shards; gives all tokens."""
        target = self.scratch / "shards"
        shutil.rmtree(target, ignore_errors=True)
        reading, options = CorpusOptions(min_chars=1), ShardOptions(holdout=0, shard_mb=4)
        build_shards([str(self.path)], self.tokenizer, target, corpus=reading, options=options, workers=WORKERS)
        shards = ShardSet(target)
        return np.concatenate([shards.shard(number).tokens for number in range(shards.num_shards)])

    def theirs(self) -> np.ndarray:
        """`datasets` and `transformers`; gives all tokens."""
        from datasets import load_dataset

        from bertsmith.bundle.resolve import find_model

        shutil.rmtree(self.scratch / "cache", ignore_errors=True)
        cache = str(self.scratch / "cache")
        table = load_dataset("json", data_files=str(self.path), split="train", cache_dir=cache)
        made = table.map(_Encode(str(find_model(self.model)[0])), batched=True, num_proc=WORKERS,
                         remove_columns=table.column_names)  # fmt: skip
        flat = made.data.column("input_ids").combine_chunks().flatten().flatten()
        return flat.to_numpy()

    def tokenizer_alone(self) -> None:
        """The engine on sentences that are there already, on all cores (a process that forked must say so)."""
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        self.tokenizer._plain_engine.encode_batch_fast(self.sentences, add_special_tokens=False)
        del os.environ["TOKENIZERS_PARALLELISM"]


class _Encode:
    """What people hand to `map`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.tokenizer: Any = None
        self.splitter = SentenceSplitter()

    def __call__(self, batch: dict[str, list[str]]) -> dict[str, list[list[list[int]]]]:
        if self.tokenizer is None:
            from transformers import AutoTokenizer

            self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
            self.tokenizer.split_special_tokens = True
        documents = []
        for text in batch["text"]:
            sentences = self.splitter.split(text.replace("\r\n", "\n").strip())
            rows = self.tokenizer(sentences, add_special_tokens=False)["input_ids"] if sentences else []
            documents.append([row for row in rows if row])
        return {"input_ids": documents}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tokenizer": None}


def main() -> int:
    """Measure, check, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets

    datasets.disable_progress_bars()
    lines, verdicts = [], []
    with tempfile.TemporaryDirectory() as scratch:
        totals: dict[str, list[float]] = {}
        num_tokens = 0
        peaks: list[harness.Peak] = []
        for name in SETS:
            side = Side(name, Path(scratch))
            mine, theirs = side.ours(), side.theirs()  # and a warm-up
            equal = np.array_equal(mine, theirs)
            contenders: dict[str, Callable[[], object]] = {
                "bertsmith": side.ours,
                "datasets + transformers": side.theirs,
                "tokenizer alone": side.tokenizer_alone,
            }
            seconds, these = harness.take_turns(contenders, options.rounds)
            peaks += these
            num_tokens += len(mine)
            for contender, times in seconds.items():
                rate = len(mine) / statistics.median(times) / 1e6
                lines.append(f"| {name} | {contender} | {harness.spread(times)} | {rate:.2f} |")
                totals[contender] = [a + b for a, b in zip(totals.get(contender, [0] * len(times)), times, strict=True)]
            verdicts.append((f"tokens equal, {name}", "all", f"{len(mine):,} tokens", equal))
    ratio = harness.ratio_interval(totals["bertsmith"], totals["datasets + transformers"])
    share = harness.ratio_interval(totals["bertsmith"], totals["tokenizer alone"])
    verdicts += [
        ("both corpora, against `datasets` + `transformers`", "at least 2×", harness.interval(ratio), ratio[0] >= 2),
        ("time of the Rust tokenizer alone, as a share of ours", "at least 60%", f"{share[0]:.0%}", share[0] >= 0.6),
    ]
    harness.show(
        "shards",
        "From raw text to shards",
        [
            (__doc__ or "").strip(),
            "",
            f"{num_tokens:,} tokens; {options.rounds} rounds. {harness.no_products(peaks)}",
            "",
            "| corpus | contender | seconds, median (range) | million tokens a second |",
            "|---|---|---|---|",
            *lines,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("datasets", "transformers", "sentencex"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
