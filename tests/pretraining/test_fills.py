"""Gaps in held-out sentences: the same ones always, one whole word each, and what a model puts there."""

from __future__ import annotations

import pytest
import torch

from bertsmith.data.index import WORD_START
from bertsmith.model.heads import build
from bertsmith.pretraining.fills import Gap, fill_gaps, find_gaps
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from pretraining.small_runs import SHAPE, both_splits, build_data, make_documents, make_tokenizer

CHINESE = list("今天气很好我们去公园散步看花红柳绿水清山。")


def test_gaps_are_the_same_at_every_call_and_no_more_than_asked_for(splits, data, tokenizer):
    gaps = find_gaps(splits[1], tokenizer)
    assert len(gaps) == 4
    assert find_gaps(both_splits(data)[1], tokenizer) == gaps
    assert find_gaps(splits[1], tokenizer, count=2) == gaps[:2]
    assert find_gaps(splits[1], tokenizer, count=0) == []
    assert len({gap.text for gap in gaps}) == 4


def test_a_gap_is_one_mask_in_a_sentence_of_the_held_out_text(splits, tokenizer):
    held_out = splits[1]
    sentences = [held_out.sentence(number).tolist() for number in range(held_out.num_sentences)]
    for gap in find_gaps(held_out, tokenizer, count=20):
        assert gap.ids.count(tokenizer.mask_id) == 1
        assert gap.ids[gap.place] == tokenizer.mask_id
        assert (gap.ids[0], gap.ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        whole = [*gap.ids[1 : gap.place], tokenizer.id_of(gap.answer), *gap.ids[gap.place + 1 : -1]]
        assert whole in sentences
        assert gap.text.count(tokenizer.mask_token) == 1
        assert 8 <= len(whole) <= 24


def test_a_word_of_several_pieces_and_one_with_an_unknown_beside_it_are_left_alone(tmp_path, tokenizer):
    """`baring` is bar + ##ing: only `lon`, a word of one piece, can be the gap. Punctuation cannot."""
    words = "bared baring . bared lon . baring bared baring ."
    unknown = "bared baring . bared qqq lon baring bared ."
    held_out = both_splits(build_data(tmp_path, [f"{words}\n{unknown}"], holdout=0.0))[0]
    gaps = find_gaps(held_out, tokenizer)
    assert [gap.answer for gap in gaps] == ["lon"]
    assert gaps[0].text == "bared baring. bared [MASK] . baring bared baring."
    units = held_out.shard(0).units
    assert any(not unit & WORD_START for unit in units.tolist())


@pytest.mark.parametrize(
    "documents", [["bar ban"], ["."], ["bar . . . . . . . . ."], ["bar " * 40], ["qqq " * 10]], ids=str
)
def test_text_without_a_fitting_sentence_gives_no_gap(documents, tmp_path, tokenizer):
    held_out = both_splits(build_data(tmp_path, documents, holdout=0.0))[0]
    assert find_gaps(held_out, tokenizer) == []


def test_an_empty_held_out_set_gives_no_gap(tmp_path, tokenizer):
    held_out = both_splits(build_data(tmp_path, make_documents(4), holdout=0.0))[1]
    assert find_gaps(held_out, tokenizer) == []
    assert fill_gaps(build(SHAPE, "pretraining", seed=0), tokenizer, []) == []


@pytest.mark.parametrize("words", ["pieces", "chinese"])
def test_chinese_has_gaps_too(words, tmp_path):
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *CHINESE])
    documents = ["今天天气很好我们去公园看花。\n我们去看山看水很好今天天气。"]
    held_out = both_splits(build_data(tmp_path, documents, tokenizer=tokenizer, holdout=0.0, words=words))[0]
    gaps = find_gaps(held_out, tokenizer)
    assert len(gaps) == 2
    config = SHAPE.derive(vocab_size=tokenizer.vocab_size)
    for filled in fill_gaps(build(config, "pretraining", seed=0), tokenizer, gaps):
        assert filled.gap.answer in CHINESE
        assert "[MASK]" in filled.gap.text
        assert len(filled.candidates) == 3


def test_candidates_are_the_likeliest_pieces_in_order(splits, tokenizer):
    model = build(SHAPE, "pretraining", seed=0).eval()
    gaps = find_gaps(splits[1], tokenizer)
    filled = fill_gaps(model, tokenizer, gaps, top=5)
    assert [each.gap for each in filled] == gaps
    for gap, each in zip(gaps, filled, strict=True):
        ids = torch.tensor(gap.ids)
        with torch.no_grad():
            logits = model(ids, torch.zeros_like(ids), torch.tensor([len(ids)]), torch.tensor([gap.place])).mlm[0]
        scores = dict(zip(tokenizer.pieces, logits.softmax(0).tolist(), strict=True))
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:5]
        assert [piece for piece, _ in each.candidates] == best
        assert [score for _, score in each.candidates] == pytest.approx([scores[piece] for piece in best])


def test_rows_of_the_model_beyond_the_vocabulary_are_never_named(tokenizer):
    """A model padded to a round size: its likeliest row has no piece."""
    model = build(SHAPE.derive(vocab_size=tokenizer.vocab_size + 8), "pretraining", seed=0).eval()
    with torch.no_grad():
        model.mlm.bias[-1] = 100.0
    gap = Gap([tokenizer.cls_id, tokenizer.mask_id, tokenizer.sep_id], 1, "[MASK]", "bar")
    (filled,) = fill_gaps(model, make_tokenizer(), [gap])
    assert all(piece in tokenizer.pieces for piece, _ in filled.candidates)
