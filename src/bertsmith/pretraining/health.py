"""What goes wrong in pre-training without an error: said plainly, once, with what to do."""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

from bertsmith.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bertsmith.config import BertConfig
    from bertsmith.data.examples import Examples
    from bertsmith.data.shards import ShardSet
    from bertsmith.pretraining.settings import Settings
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Health", "check_data", "check_examples"]

_MOST_UNKNOWN = 0.05
_CHANCE = 0.05  # a share of pairs beyond what naming the commoner kind would have right
_LEAST_USED = 0.5
_MOST_RANDOM = 0.6
_PAIRS_AFTER = 2000  # steps
_PAIRS_OVER = 500  # steps of training that a mean is taken of
_RATE_AFTER = 50_000  # tokens that could be masked
_RATE_TOLERANCE = 0.01


def check_data(shards: ShardSet, tokenizer: Tokenizer, config: BertConfig) -> Iterator[str]:
    """Refuse a data set that is not this model's; remark on one that was made with the wrong vocabulary."""
    if tokenizer.fingerprint != shards.index.tokenizer:
        raise ShardError(
            f"{shards.folder}: the tokens were not made with the tokenizer beside them; build the shards again"
        )
    if config.vocab_size < tokenizer.vocab_size:
        raise ShardError(
            f"{shards.folder}: its vocabulary has {tokenizer.vocab_size} pieces, the model's {config.vocab_size}; "
            "build the shards with the model's own tokenizer (bertsmith shards … --tokenizer MODEL)"
        )
    unknown = shards.index.count("train", "unknown") / max(shards.num_tokens, 1)
    if unknown > _MOST_UNKNOWN:
        yield (
            f"{unknown:.1%} of the tokens are [UNK]: the vocabulary does not fit this text; "
            "learn one from it (bertsmith vocab) and build the shards again"
        )


def check_examples(examples: Examples) -> Iterator[str]:
    """Remark on a data set that gives other examples than was meant."""
    options, shards = examples.options, examples.shards
    if options.masking.kind == "entity" and not shards.index.options.get("phrases"):
        yield (
            "masking.kind: the shards have no phrases, so words are masked; build them again with --phrases "
            "(bertsmith shards), or take --set masking.kind=word"
        )
    plan = examples.plan(0)
    random = float((plan.labels == 1).mean()) if len(plan) else 0.0
    if options.pairs == "faithful":
        why = "documents of one sentence have no other" if random > _MOST_RANDOM else "as in the original"
        yield f"{random:.1%} of the pairs are random, not half: {why}; --pairs balanced has exactly half"
    used = float((plan.a_length + plan.b_length).sum()) / max(shards.num_tokens, 1)
    if used < _LEAST_USED:
        yield (
            f"the examples of an epoch hold {used:.0%} of the text: documents of one sentence give few pairs; are "
            "sentences and documents as they should be (bertsmith inspect DATA)? --pairs none uses all of it"
        )


class Health:
    """Watches a run; each remark is made once."""

    def __init__(self, settings: Settings, *, commoner_pair: float = 0.5, pairs_after: int = _PAIRS_AFTER) -> None:
        self._settings = settings
        self._chance = commoner_pair + _CHANCE
        self._pairs_after = pairs_after
        self._maskable = self._masked = self._wanted = 0.0
        self._said: set[str] = set()
        self._pairs_right: deque[float] = deque(maxlen=_PAIRS_OVER)

    def after_step(self, step: int, figures: Mapping[str, float], maskable: float, rate: float) -> Iterator[str]:
        """Whether as much is masked as was asked for; the original's way of counting comes to a little more.

        And whether pairs are learned, by the last steps: all there is where no held-out text has pairs.
        """
        if "pair_accuracy" in figures:
            self._pairs_right.append(figures["pair_accuracy"])
            if len(self._pairs_right) == _PAIRS_OVER:
                yield from self._judge_pairs(step, statistics.fmean(self._pairs_right))
        self._maskable += maskable
        self._masked += figures["masked_share"] * maskable
        self._wanted += rate * maskable
        if self._maskable < _RATE_AFTER:
            return
        measured, wanted = self._masked / self._maskable, self._wanted / self._maskable
        slack = _RATE_TOLERANCE * (2 if self._settings.masking.faithful else 1)
        if abs(measured - wanted) > slack and self._once("rate"):
            yield (
                f"{measured:.1%} of the tokens are masked where {wanted:.1%} were asked for: words or phrases are too "
                "long for the examples, or masking.max_predictions is too small"
            )

    def after_evaluation(self, step: int, figures: Mapping[str, float]) -> Iterator[str]:
        """Whether the pair task is learned at all."""
        if "pair_accuracy" in figures:
            yield from self._judge_pairs(step, figures["pair_accuracy"])

    def _judge_pairs(self, step: int, accuracy: float) -> Iterator[str]:
        if step >= self._pairs_after and accuracy < self._chance and self._once("pairs"):
            yield (
                f"pairs are told apart no better than by chance ({accuracy:.1%}) after {step} steps: are sentences in "
                "their order and documents kept apart (bertsmith inspect DATA)? Train longer, or without pairs "
                "(--set pairs=none)"
            )

    def _once(self, what: str) -> bool:
        new = what not in self._said
        self._said.add(what)
        return new
