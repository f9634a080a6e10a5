"""A pre-training step on real text, both losses, against `transformers`' BertForPreTraining with AdamW.

The same weights, the same examples (balanced pairs of en-general and en-web, up to 128 tokens, 15% of the tokens
masked by words, about 4,096 tokens a batch), torch's fused AdamW and clipping to norm 1 on both sides. The peer pads to
the longest of the batch and comes with eager attention and with SDPA; the better one counts. Before any timing losses
and gradients are compared. Memory is the most that a process holds during a step beyond what it held with the model
loaded, each side in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import harness
from bertsmith.bundle.fitting import split_names
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.config import named_size
from bertsmith.data.building import build_shards
from bertsmith.data.examples import ExampleOptions, Examples
from bertsmith.data.shards import ShardSet
from bertsmith.data.stream import Stream
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.model.heads import build
from bertsmith.model.memory import keep_freed_memory
from bertsmith.pretraining.work import TensorBatch, operations_of
from pretrain_run import run_language

if TYPE_CHECKING:
    from collections.abc import Callable

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
FILES = [str(CORPORA / name) for name in ("en-general.jsonl", "en-web.jsonl")]
TOKENS = 4096
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """A model, and what is asked of it: times the peer's speed, share of the peak."""

    size: str
    vocab_size: int
    dropout: float
    ratio: float | None
    share: float | None
    rounds: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.size}, vocabulary {self.vocab_size:,}" + (f", dropout {self.dropout}" if self.dropout else "")


CASES = [
    Case("tiny", 30522, 0.0, 4.0, None, 15),
    Case("mini", 30522, 0.0, 3.0, 0.55, 11),
    Case("mini", 8192, 0.0, 1.8, None, 11),
    Case("base", 30522, 0.0, 1.4, 0.60, 5),
    Case("mini", 30522, 0.1, None, None, 7),
]


class Side:
    """A model with its optimizer, and how it turns a batch into a loss."""

    def __init__(self, model: torch.nn.Module, batches: list[Any], loss: Callable[[Any, Any], torch.Tensor]) -> None:
        self.model = model.train()
        self.loss = lambda batch: loss(model, batch)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.batches = cycle(batches)

    def step(self) -> None:
        """A training step."""
        self.loss(next(self.batches)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def our_loss(model: Any, batch: TensorBatch) -> torch.Tensor:
    """Both losses of a packed batch."""
    scores = model.score(*batch.tensors)
    return scores.mlm_loss / len(batch.tensors[4]) + scores.pair_loss / len(batch.tensors[5])


def their_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Both losses of a padded batch."""
    return model(**batch).loss


def pad(batch: TensorBatch) -> dict[str, torch.Tensor]:
    """The same batch as `transformers` wants it."""
    ids, types, lengths, positions, words, pairs = batch.tensors
    kept = torch.arange(int(lengths.max())) < lengths[:, None]
    labels = torch.full_like(ids, -100).index_copy(0, positions, words)
    grids = [
        torch.full(kept.shape, fill).masked_scatter(kept, flat) for fill, flat in ((0, ids), (0, types), (-100, labels))
    ]
    return {"input_ids": grids[0], "token_type_ids": grids[1], "labels": grids[2], "attention_mask": kept.long(),
            "next_sentence_label": pairs}  # fmt: skip


def make_batches(shards: Path, count: int) -> list[TensorBatch]:
    """The first batches of an epoch."""
    examples = Examples(ShardSet(shards), open_tokenizer(str(shards)), ExampleOptions())
    stream = islice(Stream(examples, TOKENS).batches(), count)
    return [TensorBatch.of(examples.batch(b.epoch, b.rows), torch.device("cpu")) for b in stream]


def peer_model(folder: Path, attention: str) -> Any:
    """The same weights in `transformers`."""
    from transformers import BertForPreTraining

    return BertForPreTraining.from_pretrained(folder, attn_implementation=attention)


def write_model(case: Case, folder: Path, tokenizer: Any) -> Any:
    """Our model, also as a folder that the peer reads."""
    rates = {"hidden_dropout_prob": case.dropout, "attention_probs_dropout_prob": case.dropout}
    model = build(named_size(case.size, vocab_size=case.vocab_size, **rates), "pretraining", seed=0)
    write_bundle(folder, Bundle(model, tokenizer, 512), source="a benchmark")
    return model


def largest_difference(ours: Side, theirs: Side, batch: TensorBatch) -> float:
    """Of loss and gradients, relative to each tensor's largest entry; dropout off."""
    ours.model.eval()
    theirs.model.eval()
    mine, other = ours.loss(batch), theirs.loss(pad(batch))
    mine.backward()
    other.backward()
    gradients = split_names({name: tensor.grad for name, tensor in ours.model.named_parameters()})
    worst = float((mine - other).detach().abs() / other.detach())
    for name, tensor in theirs.model.named_parameters():
        if not name.endswith("key.bias") and "position_embeddings" not in name:  # zero but for rounding; the same rows
            worst = max(worst, float((gradients[name] - tensor.grad).abs().max() / tensor.grad.abs().max()))
    for side in (ours, theirs):
        side.optimizer.zero_grad()
        side.model.train()
    return worst


def run_case(case: Case, shards: Path, scratch: Path, threads: int) -> dict[str, Any]:
    """Compare, then measure, all sides turn and turn about."""
    torch.set_num_threads(threads)
    batches = make_batches(shards, 4)
    folder = scratch / case.name.replace(" ", "-")
    model = write_model(case, folder, open_tokenizer(str(shards)))
    ours = Side(model, batches, our_loss)
    padded = [pad(batch) for batch in batches]
    sides = {"bertsmith": ours}
    sides |= {f"transformers, {name}": Side(peer_model(folder, name), padded, their_loss) for name in ("eager", "sdpa")}
    difference = largest_difference(ours, sides["transformers, sdpa"], batches[0])
    for side in sides.values():
        side.step()
    seconds, peaks = harness.take_turns({name: side.step for name, side in sides.items()}, case.rounds)
    counts = [operations_of(batch, model.config) for batch in batches]
    tokens = statistics.mean(int(batch.tensors[2].sum()) for batch in batches)
    return {
        "seconds": seconds,
        "peaks": peaks,
        "difference": difference,
        "operations": statistics.mean(counts),
        "tokens": tokens,
    }


def memory_of(which: str, shards: Path, folder: Path, threads: int, answer: Any) -> None:
    """In a process of its own: MiB that two steps take at most beyond the loaded model."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    batches = make_batches(shards, 2)
    if which == "bertsmith":
        from bertsmith.bundle.folder import read_bundle

        side = Side(read_bundle(folder, "pretraining").model, batches, our_loss)
    else:
        side = Side(peer_model(folder, which.split(", ")[1]), [pad(batch) for batch in batches], their_loss)
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest mark so far
    before = harness.resident()["VmRSS"]
    for _ in range(2):
        side.step()
    answer.put(harness.resident()["VmHWM"] - before)


def measure_memory(shards: Path, folder: Path, threads: int) -> dict[str, float]:
    """All sides, one after the other."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for which in ("bertsmith", "transformers, eager", "transformers, sdpa"):
        answer = context.Queue()
        process = context.Process(target=memory_of, args=(which, shards, folder, threads, answer))
        process.start()
        found[which] = answer.get(timeout=600)
        process.join()
    return found


def main() -> int:
    """Measure, check, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--only", default="", help="cases whose name contains this; memory")
    arguments.add_argument(
        "--run", choices=["en", "zh"], help="instead, a whole run on this text (benchmarks/pretrain_run.py)"
    )
    arguments.add_argument("--minutes", type=float, help="how long that run is")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    if options.run is not None:
        return run_language(options.run, options.minutes, keep=options.keep)
    verdicts: list[tuple[str, str, str, bool]] = []
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        build_shards(FILES, open_tokenizer("minilm"), scratch / "30522", workers=2)
        vocab(FILES, output=scratch / "vocabulary", options=VocabOptions(size=8192))
        build_shards(FILES, open_tokenizer(str(scratch / "vocabulary")), scratch / "8192", workers=2)
        for case in CASES:
            if options.only in case.name:
                print(case.name, file=sys.stderr)
                found = run_case(case, scratch / str(case.vocab_size), scratch, options.threads)
                rows += table_rows(case, found)
                verdicts += judge(case, found)
        if options.only in "memory":
            verdicts.append(judge_memory(scratch, options.threads))
    harness.show(
        "pretrain-step",
        "A pre-training step",
        [
            (__doc__ or "").strip(),
            "",
            f"{options.threads} threads. The peak is the best of three float32 products ({harness.peak_shapes()}), "
            "measured in every round. Operations are those that our step needs, the optimizer's excluded. Memory is of "
            "one run of each side.",
            "",
            "| model | contender | seconds a step, median (range) | tokens a second | share of the peak; operations |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("transformers"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


def shares_of_peak(found: dict[str, Any]) -> list[float]:
    """What our step makes of the machine, round by round."""
    return harness.peak_shares(found["operations"], found["seconds"]["bertsmith"], found["peaks"])


def table_rows(case: Case, found: dict[str, Any]) -> list[str]:
    """A row for each side."""
    peak = harness.describe_peaks(found["peaks"]).split(",")[0]
    about = f"{statistics.median(shares_of_peak(found)):.0%} of {peak}; {found['operations'] / 1e9:.0f} GFLOP"
    rows = []
    for side, times in found["seconds"].items():
        speed = found["tokens"] / statistics.median(times)
        cells = (case.name, side, harness.spread(times), f"{speed:,.0f}", about if side == "bertsmith" else "")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def judge(case: Case, found: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Target against measurement."""
    seconds = found["seconds"]
    best = min((n for n in seconds if n != "bertsmith"), key=lambda n: statistics.median(seconds[n]))
    ratio = harness.ratio_interval(seconds["bertsmith"], seconds[best])
    shares, difference = shares_of_peak(found), found["difference"]
    target = "–" if case.ratio is None else f"at least {case.ratio}×"
    rows = [(f"{case.name}: times {best}", target, harness.interval(ratio), ratio[0] >= (case.ratio or 0))]
    if case.share is not None:
        share = statistics.median(shares)
        shown = f"{share:.0%} ({min(shares):.0%}–{max(shares):.0%} over rounds)"
        rows.append((f"{case.name}: share of the peak", f"at least {case.share:.0%}", shown, share >= case.share))
    rows.append((f"{case.name}: loss and gradients equal", "1e-4", f"{difference:.1e}", difference <= TOLERANCE))
    return rows


def judge_memory(scratch: Path, threads: int) -> tuple[str, str, str, bool]:
    """Ours against the leaner of the peer's two."""
    write_model(CASES[1], scratch / "memory", open_tokenizer(str(scratch / "30522")))
    memory = measure_memory(scratch / "30522", scratch / "memory", threads)
    ours = memory.pop("bertsmith")
    least = min(memory.values())
    measured = f"{ours / least:.2f}×: {ours:.0f} MiB against {least:.0f}"
    return f"memory of a step, {CASES[1].name}", "at most 0.4×", measured, ours / least <= 0.4


if __name__ == "__main__":
    sys.exit(main())
