"""Examples from real shards: what they are made of, and that they depend on nothing but their number."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.examples import ExampleOptions, Examples, cut_by_tokens
from bertsmith.data.masking import Masking
from bertsmith.data.shards import ShardSet
from bertsmith.errors import ConfigError
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [f"w{number}" for number in range(200)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A data set of several shards and its tokenizer."""
    folder = tmp_path_factory.mktemp("examples")
    rng = random.Random(0)
    documents = ["\n".join(" ".join(rng.choices(WORDS, k=rng.randint(3, 20))) for _ in range(12)) for _ in range(80)]
    (folder / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *WORDS])
    options = ShardOptions(holdout=0, shard_mb=0.01, sentences="lines")
    build_shards([str(folder / "corpus.txt")], tokenizer, folder / "data", options=options, workers=1)
    shards = ShardSet(folder / "data")
    assert shards.num_shards > 3
    return shards, tokenizer


def whole(shards):
    return np.concatenate([shards.shard(number).tokens for number in range(shards.num_shards)]).astype(np.int64)


@pytest.mark.parametrize("pairs", ["faithful", "balanced", "sop", "none"])
def test_an_example_is_cls_a_sep_b_sep_with_the_tokens_of_its_row(made, pairs):
    shards, tokenizer = made
    examples = Examples(shards, tokenizer, ExampleOptions(max_length=64, pairs=pairs))
    plan = examples.plan(0)
    rows = np.arange(len(plan))
    batch = examples.batch(0, rows)
    original = batch.input_ids.copy()
    original[batch.positions] = batch.labels
    text = whole(shards)
    place = 0
    for row in rows.tolist():
        a = text[plan.a_start[row] : plan.a_start[row] + plan.a_length[row]].tolist()
        b = text[plan.b_start[row] : plan.b_start[row] + plan.b_length[row]].tolist()
        expected = [tokenizer.cls_id, *a, tokenizer.sep_id]
        types = [0] * len(expected)
        if pairs != "none":
            expected += [*b, tokenizer.sep_id]
            types += [1] * (len(b) + 1)
        length = int(batch.lengths[row])
        assert original[place : place + length].tolist() == expected
        assert batch.token_type_ids[place : place + length].tolist() == types
        place += length
    assert place == len(original)
    assert len(batch.pair_labels) == (0 if pairs == "none" else len(rows))


def test_an_example_does_not_depend_on_the_batch_or_on_what_was_read_before(made):
    shards, tokenizer = made
    options = ExampleOptions(max_length=64, masking=Masking("span"))
    examples, others = Examples(shards, tokenizer, options), Examples(shards, tokenizer, options)
    together = examples.batch(3, np.arange(20))
    others.batch(1, np.arange(7))
    ends = np.cumsum(together.lengths)
    for row in (19, 4, 0, 11):
        alone = others.batch(3, np.array([row]))
        part = slice(ends[row] - together.lengths[row], ends[row])
        assert (alone.input_ids == together.input_ids[part]).all()


def test_masks_are_new_in_every_epoch_unless_they_are_static(made):
    shards, tokenizer = made
    dynamic = Examples(shards, tokenizer, ExampleOptions(max_length=64))
    static = Examples(shards, tokenizer, ExampleOptions(max_length=64, static_copies=2))
    rows = np.arange(30)
    assert len({dynamic.batch(epoch, rows).input_ids.tobytes() for epoch in range(4)}) == 4
    assert len({static.batch(epoch, rows).input_ids.tobytes() for epoch in range(4)}) == 2


def test_batches_hold_about_the_tokens_asked_for():
    lengths = np.random.default_rng(0).integers(5, 129, 5000)
    cuts = cut_by_tokens(lengths, 4096)
    sizes = np.add.reduceat(lengths, cuts[:-1])
    assert cuts[0] == 0
    assert cuts[-1] == 5000
    assert abs(sizes[:-1] - 4096).max() <= 128


def test_impossible_options_are_named():
    with pytest.raises(ConfigError, match="max_length"):
        ExampleOptions(max_length=4)
    with pytest.raises(ConfigError, match="rate"):
        Masking(rate=1.5)
