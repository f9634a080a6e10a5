"""One training step of MiniLM with a two-class head on 32 short sentences, against `transformers`.

A step is forward, loss, backward, clipping to norm 1 and AdamW (torch's fused one on both sides), with dropout
0.1. The peer pads to the longest of the batch, or to 128, as most scripts do. The lengths follow those of SST-2's
training set: log-normal, 13 tokens on average. Before any timing both sides' losses and gradients are compared
with dropout off.
"""

from __future__ import annotations

import random
import statistics
import sys
from itertools import cycle
from pydoc_data import topics
from typing import TYPE_CHECKING, Any

import torch

import harness
from bertsmith.bundle.fitting import split_names
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.data.batches import PackedBatch
from bertsmith.model.losses import classification_loss
from bertsmith.model.memory import keep_freed_memory
from bertsmith.model.operations import encoder_operations

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 32
TOLERANCE = 1e-4


def short_sentences(count: int, seed: int = 0) -> list[str]:
    """Words of Python's own documentation, as many as SST-2's sentences have."""
    words = [word for word in " ".join(topics.topics.values()).split() if word.isalpha()]
    rng = random.Random(seed)
    sizes = [min(50, max(1, round(rng.lognormvariate(1.97, 0.85)))) for _ in range(count)]
    return [" ".join(rng.choices(words, k=size)) for size in sizes]


class Step:
    """One side: its model, its optimizer, and how it turns a batch into a loss."""

    def __init__(self, model: torch.nn.Module, batches: list[Any], loss: Callable[[Any, Any], torch.Tensor]) -> None:
        self.model = model
        self.loss = lambda batch: loss(model, batch)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
        self.batches = cycle(batches)

    def passes(self) -> None:
        """Forward and backward."""
        self.loss(next(self.batches)).backward()
        self.optimizer.zero_grad()

    def whole(self) -> None:
        """A training step."""
        self.loss(next(self.batches)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def our_loss(model: Any, batch: tuple[PackedBatch, torch.Tensor]) -> torch.Tensor:
    """A packed batch to its loss."""
    packed, labels = batch
    return classification_loss(model(packed.input_ids, packed.token_type_ids, packed.lengths), labels)


def their_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """A padded batch to its loss."""
    return model(**batch).loss


def pad(packed: PackedBatch, labels: torch.Tensor, length: int | None) -> dict[str, torch.Tensor]:
    """The same batch as `transformers` wants it."""
    sizes = packed.lengths.tolist()
    shape = (len(sizes), length or max(sizes))
    kept = torch.arange(shape[1]) < packed.lengths[:, None]
    ids = torch.zeros(shape, dtype=torch.int64).masked_scatter(kept, packed.input_ids)
    return {"input_ids": ids, "attention_mask": kept.long(), "token_type_ids": torch.zeros_like(ids), "labels": labels}


def largest_difference(ours: Step, theirs: Step, packed: tuple[PackedBatch, torch.Tensor], padded: Any) -> float:
    """Of loss and gradients, relative to each tensor's largest entry; dropout off."""
    ours.model.eval()
    theirs.model.eval()
    mine, other = ours.loss(packed), theirs.loss(padded)
    mine.backward()
    other.backward()
    gradients = split_names({name: tensor.grad for name, tensor in ours.model.named_parameters()})
    worst = float((mine - other).detach().abs() / other.detach())
    for name, tensor in theirs.model.named_parameters():
        if not name.endswith("key.bias"):  # zero but for rounding: softmax does not see it
            worst = max(worst, float((gradients[name] - tensor.grad).abs().max() / tensor.grad.abs().max()))
    ours.optimizer.zero_grad()
    theirs.optimizer.zero_grad()
    ours.model.train()
    theirs.model.train()
    return worst


def operations(packed: PackedBatch, config: Any) -> int:
    """Of the matrix products one step needs: forward once, backward twice, the last layer for `[CLS]` only."""
    lengths = packed.lengths.tolist()
    return 3 * encoder_operations(config, lengths, [1] * len(lengths))


def main() -> int:
    """Measure, check, print."""
    from transformers import AutoModelForSequenceClassification

    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    keep_freed_memory()
    bundle = load_bundle("minilm", "classification", fresh_head=True, num_labels=2)
    assert bundle.tokenizer is not None
    texts = short_sentences(8 * BATCH)
    ids = [row.ids for row in bundle.tokenizer.encode_batch(texts)]
    labels = torch.arange(BATCH) % 2
    batches = [(PackedBatch.of(ids[start : start + BATCH]), labels) for start in range(0, len(ids), BATCH)]
    ours = Step(bundle.model.train(), batches, our_loss)

    def peer(length: int | None) -> Step:
        model = AutoModelForSequenceClassification.from_pretrained(find_model("minilm")[0], num_labels=2)
        with torch.no_grad():
            model.classifier.weight.copy_(bundle.model.classifier.weight)
            model.classifier.bias.copy_(bundle.model.classifier.bias)
        return Step(model.train(), [pad(packed, labels, length) for packed, labels in batches], their_loss)

    longest, fixed = peer(None), peer(128)
    difference = max(largest_difference(ours, one, batches[0], next(one.batches)) for one in (longest, fixed))
    for one in (longest, fixed):  # back to the first batch
        [next(one.batches) for _ in range(len(batches) - 1)]
    sides = {"bertsmith": ours, "transformers, to the longest": longest, "transformers, to 128": fixed}
    for side in sides.values():
        side.whole()
    passes, _ = harness.take_turns({name: side.passes for name, side in sides.items()}, options.rounds)
    whole, peaks = harness.take_turns({name: side.whole for name, side in sides.items()}, options.rounds)
    return report(options, batches, bundle.model.config, passes, whole, difference, peaks)


def report(
    options: Any, batches: Any, config: Any, passes: dict[str, list[float]], whole: dict[str, list[float]],
    difference: float, peaks: list[Any],
) -> int:  # fmt: skip
    """The page; gives 1 where results differ or a target is missed."""
    lengths = [length for packed, _ in batches for length in packed.lengths.tolist()]
    needed = sum(operations(packed, config) for packed, _ in batches) / len(batches)
    to_longest, to_128 = (
        harness.ratio_interval(whole["bertsmith"], whole[f"transformers, to {what}"]) for what in ("the longest", "128")
    )
    share = harness.peak_share(needed, whole["bertsmith"], peaks)
    rows = []
    for name in whole:
        step, low, high = (1000 * pick(whole[name]) for pick in (statistics.median, min, max))
        both = 1000 * statistics.median(passes[name])
        slower = [statistics.median(times[name]) / statistics.median(times["bertsmith"]) for times in (whole, passes)]
        cells = (name, f"{step:.0f} ({low:.0f}–{high:.0f})", f"{slower[0]:.2f}×", f"{both:.0f}", f"{slower[1]:.2f}×")
        rows.append(f"| {' | '.join(cells)} |")
    verdicts = [
        ("step, against padding to the longest", "at least 2.5×", harness.interval(to_longest), to_longest[0] >= 2.5),
        ("step, against padding to 128", "at least 7×", harness.interval(to_128), to_128[0] >= 7),
        ("loss and gradients equal", "1e-4", f"{difference:.1e}", difference <= TOLERANCE),
    ]
    longest = statistics.mean(max(packed.lengths.tolist()) for packed, _ in batches)
    harness.show(
        "finetune-step",
        "A fine-tuning step",
        [
            (__doc__ or "").strip(),
            "",
            f"{len(batches)} batches of {BATCH}, {statistics.mean(lengths):.1f} tokens on average, the longest "
            f"of a batch {longest:.0f}; {options.threads} threads, {options.rounds} rounds.",
            f"Peak of this machine, measured in every round: {harness.describe_peaks(peaks)}. "
            f"Operations a step needs: {needed / 1e9:.1f} GFLOP; share of the peak, optimizer included: {share:.0%}.",
            "",
            "| contender | step, ms, median (range) | bertsmith is faster by | forward and backward, ms | faster by |",
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


if __name__ == "__main__":
    sys.exit(main())
