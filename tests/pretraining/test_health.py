"""Remarks on a run that goes wrong without an error: each when it must, once, and not otherwise."""

from __future__ import annotations

import re

import pytest

from bertsmith.data.examples import ExampleOptions, Examples
from bertsmith.data.masking import Masking
from bertsmith.errors import ShardError
from bertsmith.pretraining.health import Health, check_data, check_examples
from bertsmith.pretraining.recipes import faithful, modern
from pretraining.small_runs import PIECES, SHAPE, both_splits, build_data, make_documents, make_tokenizer


def after_steps(health, measured, wanted=0.15, maskable=10_000.0, steps=8):
    return [
        remark for _ in range(steps) for remark in health.after_step(1, {"masked_share": measured}, maskable, wanted)
    ]


@pytest.mark.parametrize(("accuracy", "fires"), [(0.51, True), (0.7, False)])
def test_pairs_at_chance_are_seen_in_training_too(accuracy, fires):
    """Held-out text may have no pairs, or there may be none."""
    health = Health(modern())
    figures = {"masked_share": 0.15, "pair_accuracy": accuracy}
    early = [remark for step in range(1, 2000) for remark in health.after_step(step, figures, 100.0, 0.15)]
    later = [remark for step in range(2000, 2100) for remark in health.after_step(step, figures, 100.0, 0.15)]
    assert early == []
    assert ["no better than by chance" in remark for remark in later] == [True] * fires


@pytest.mark.parametrize(
    ("settings", "measured", "fires"),
    [
        (modern(), 0.15, False),
        (modern(), 0.159, False),
        (modern(), 0.141, False),
        (modern(), 0.165, True),
        (modern(), 0.135, True),
        (faithful(), 0.165, False),  # counted from all tokens, so a little more
        (faithful(), 0.175, True),
        (faithful(), 0.12, True),
    ],
)
def test_a_share_of_masks_other_than_asked_for_is_remarked_on_once(settings, measured, fires):
    remarks = after_steps(Health(settings), measured)
    assert len(remarks) == int(fires)
    if fires:
        assert f"{measured:.1%} of the tokens are masked where 15.0% were asked for" in remarks[0]
        assert "max_predictions" in remarks[0]


def test_the_share_of_masks_is_judged_after_enough_tokens_and_on_average():
    health = Health(modern())
    assert after_steps(health, 0.5, steps=4) == []  # 40,000 tokens
    assert len(after_steps(health, 0.5, steps=1)) == 1
    health = Health(modern())
    assert after_steps(health, 0.10, steps=2) + after_steps(health, 0.175, steps=4) == []
    health = Health(modern())  # a rate that changes is compared with what was asked for at each step
    assert after_steps(health, 0.30, wanted=0.30) + after_steps(health, 0.15, wanted=0.15) == []


def test_pairs_no_better_than_chance_are_remarked_on_once_and_not_early():
    health = Health(modern(), pairs_after=100)
    assert list(health.after_evaluation(99, {"pair_accuracy": 0.5})) == []
    (remark,) = health.after_evaluation(100, {"pair_accuracy": 0.51})
    assert "51.0%" in remark
    assert "--set pairs=none" in remark
    assert list(health.after_evaluation(200, {"pair_accuracy": 0.5})) == []


def test_pairs_that_are_learned_or_not_there_are_not_remarked_on():
    health = Health(modern(), pairs_after=100)
    assert list(health.after_evaluation(500, {"pair_accuracy": 0.56})) == []
    assert list(health.after_evaluation(500, {"mlm_accuracy": 0.1})) == []
    health = Health(modern(), commoner_pair=0.65, pairs_after=100)  # where two thirds of the pairs are random
    assert len(list(health.after_evaluation(500, {"pair_accuracy": 0.66}))) == 1


def remarks_on(folder, documents, **options):
    train, _ = both_splits(build_data(folder, documents))
    return list(check_examples(Examples(train, make_tokenizer(), ExampleOptions(max_length=32, **options))))


def test_pairs_that_the_documents_do_not_give_are_remarked_on(tmp_path):
    documents = make_documents(40)
    for number, pairs in enumerate(("balanced", "sop", "none")):
        assert remarks_on(tmp_path / str(number), documents, pairs=pairs) == []
    (remark,) = remarks_on(tmp_path / "3", documents, pairs="faithful")
    assert re.fullmatch(r"5\d\.\d% of the pairs are random, not half: as in the original; .*", remark)
    single = [text.splitlines()[0] for text in make_documents(200)] + make_documents(4)
    (remark,) = remarks_on(tmp_path / "a", single, pairs="faithful")
    assert "% of the pairs are random, not half: documents of one sentence" in remark
    (remark,) = remarks_on(tmp_path / "b", single, pairs="balanced")
    assert "% of the text" in remark
    assert "--pairs none" in remark
    assert remarks_on(tmp_path / "c", single, pairs="none") == []


def test_phrases_that_the_shards_do_not_have_are_remarked_on(tmp_path):
    (remark,) = remarks_on(tmp_path / "a", make_documents(40), masking=Masking("entity"))
    assert "the shards have no phrases" in remark


def test_text_that_the_vocabulary_does_not_fit_is_remarked_on(tmp_path, tokenizer, splits):
    assert list(check_data(splits[0], tokenizer, SHAPE)) == []
    foreign = [text.replace("bar", "xyz").replace("del", "uvw") for text in make_documents(30)]
    train, _ = both_splits(build_data(tmp_path / "a", foreign))
    assert list(check_data(train, tokenizer, SHAPE)) == []
    foreign = [text.replace("t", "q") for text in foreign]
    train, _ = both_splits(build_data(tmp_path / "b", foreign))
    (remark,) = check_data(train, tokenizer, SHAPE)
    assert "of the tokens are [UNK]" in remark
    assert "bertsmith vocab" in remark


def test_a_tokenizer_that_did_not_make_the_tokens_is_refused(splits):
    other = make_tokenizer([*PIECES[:-1], "##er"])
    with pytest.raises(ShardError, match="not made with the tokenizer beside them; build the shards again"):
        list(check_data(splits[0], other, SHAPE))


def test_a_model_with_too_small_a_vocabulary_is_refused(splits, tokenizer):
    small = SHAPE.derive(vocab_size=len(PIECES) - 1)
    with pytest.raises(ShardError, match=f"has {len(PIECES)} pieces, the model's {len(PIECES) - 1}; build"):
        list(check_data(splits[0], tokenizer, small))
    assert list(check_data(splits[0], tokenizer, SHAPE.derive(vocab_size=1000))) == []
