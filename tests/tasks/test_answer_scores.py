"""Scores of answers: worked by hand, beside torchmetrics, and the best threshold beside trying each one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from bertsmith.errors import InputError
from bertsmith.tasks.answer_scores import (
    AnswerScores,
    best_threshold,
    chinese_exact_match,
    chinese_f1,
    exact_match,
    f1,
    normalise,
    score_answers,
    score_chinese,
)

TEXTS = st.lists(
    st.sampled_from(["the", "A", "an", "cat", "Cat.", "dog", "U.S.", "...", "été", "the-dog"]), max_size=4
).map(" ".join)
QUESTIONS = st.dictionaries(
    st.sampled_from("pqrstuvw"),
    st.tuples(st.lists(TEXTS, max_size=3), TEXTS, st.integers(-2, 2) | st.floats(-3, 3)),
    min_size=1,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat, the DOG!", "cat dog"),
        ("an  apple\tand\na pear", "apple and pear"),
        ("theatre analysis", "theatre analysis"),  # an article is a whole word
        ("U.S.A.", "usa"),
        ("a-bomb", "abomb"),  # punctuation goes before articles, so this "a" is none
        ("vitamin a.", "vitamin"),
        ("“the end”", "“ end”"),  # only ASCII punctuation goes
        ("“the”", "“ ”"),  # an article leaves a space
        ("ÉCOLE a\u00a0b", "école b"),
        ("The.", ""),
        ("", ""),
    ],
)
def test_text_before_it_is_compared(text, normal):
    assert normalise(text) == normal


def test_an_answer_matches_but_for_case_articles_and_punctuation():
    assert exact_match("the Eiffel Tower.", ["Eiffel tower"]) == 1.0
    assert exact_match("Eiffel", ["Eiffel tower"]) == 0.0
    assert exact_match("Eiffel", ["Eiffel tower", "eiffel"]) == 1.0


def test_words_are_shared_as_often_as_both_have_them():
    """New new york | new york york: 1 new and 1 york shared of 3 and 3 words."""
    assert f1("new new york", ["new york york"]) == pytest.approx(2 / 3)
    assert f1("york new", ["new york"]) == 1.0


def test_the_best_gold_answer_counts():
    """2 of 2 guessed and 2 of 4 gold words: 2·2/6; against the other 1 of 2 and 1 of 1: 2·1/3; none of the third."""
    golds = ["in the Denver Colorado stadium", "denver", "Boston"]
    assert f1("Denver, Colorado", golds[:1]) == pytest.approx(2 / 3)
    assert f1("Denver, Colorado", golds[1:]) == pytest.approx(2 / 3)
    assert f1("Denver", golds) == 1.0
    assert f1("Denver", golds[2:]) == 0.0


@pytest.mark.parametrize("score", [exact_match, f1])
def test_a_question_without_answer_wants_an_empty_guess(score):
    assert score("", []) == score("", [""]) == score("the.", []) == 1.0
    assert score("cat", []) == score("cat", [""]) == 0.0
    assert score("", ["cat"]) == 0.0


@pytest.mark.parametrize("score", [exact_match, f1])
def test_a_gold_answer_of_nothing_but_articles_is_left_out(score):
    """Beside another it is no answer to "": alone it is the empty one."""
    assert score("", ["the", "cat"]) == 0.0
    assert score("an", ["the"]) == 1.0


def test_the_scores_of_a_set_with_unanswerable_questions():
    """Exact: p, s of 5. F1: p 1, q 2·1/3 (of one and two words), s 1. A missing guess is an empty one."""
    golds = {"p": ["cat"], "q": ["red dog", "wolf"], "r": [], "s": [], "t": ["owl"]}
    guesses = {"p": "The cat", "q": "dog", "r": "fox", "unknown": "is ignored"}
    assert score_answers(golds, guesses) == AnswerScores(
        exact_match=2 / 5,
        f1=pytest.approx((1 + 2 / 3 + 1) / 5),
        has_answer_exact=1 / 3,
        has_answer_f1=pytest.approx((1 + 2 / 3) / 3),
        no_answer_accuracy=1 / 2,
        num_has_answer=3,
        num_no_answer=2,
    )


def test_a_kind_of_question_that_is_missing_has_no_score():
    assert score_answers({"p": ["cat"]}, {"p": "cat"}) == AnswerScores(1, 1, 1, 1, None, 1, 0)
    assert score_answers({"p": []}, {"p": "cat"}) == AnswerScores(0, 0, None, None, 0, 0, 1)


def test_an_empty_gold_text_means_that_there_is_no_answer():
    assert score_answers({"p": [""]}, {"p": ""}) == score_answers({"p": []}, {"p": ""})


@given(QUESTIONS)
@settings(max_examples=100, deadline=None)
def test_scores_are_shares_and_f1_is_the_kinder(questions):
    golds = {question: texts for question, (texts, _, _) in questions.items()}
    scores = score_answers(golds, {question: guess for question, (_, guess, _) in questions.items()})
    assert 0 <= scores.exact_match <= scores.f1 <= 1
    assert scores.num_has_answer + scores.num_no_answer == len(golds)


@given(QUESTIONS)
@settings(max_examples=100, deadline=None)
def test_torchmetrics_comes_to_the_same_scores(questions):
    """But for gold answers of nothing but articles, which it takes for "" beside others too."""
    golds = {question: [text for text in texts if normalise(text)] for question, (texts, _, _) in questions.items()}
    guesses = {question: guess for question, (_, guess, _) in questions.items()}
    asked = [
        {"id": question, "answers": {"text": texts or [""], "answer_start": [0] * max(1, len(texts))}}
        for question, texts in golds.items()
    ]
    theirs = squad([{"id": question, "prediction_text": guess} for question, guess in guesses.items()], asked)
    ours = score_answers(golds, guesses)
    found = (100 * ours.exact_match, 100 * ours.f1)
    assert found == pytest.approx((theirs["exact_match"].item(), theirs["f1"].item()), abs=1e-3)


def test_the_best_threshold_of_four_questions():
    """By null score −2 right, −1 unanswerable, 1 half right, 3 unanswerable; nothing answered scores 2.

    F1 goes 2, 3, 2, 2⅔, 1⅔; exact match 2, 3, 2, 2, 1. So only the first is answered.
    """
    golds = {"p": ["cat"], "q": [], "r": ["red dog"], "s": []}
    guesses = {"p": "cat", "q": "fox", "r": "dog", "s": "owl"}
    nulls = {"p": -2.0, "q": -1.0, "r": 1.0, "s": 3.0}
    best = best_threshold(golds, guesses, nulls)
    assert (best.threshold, best.exact_match, best.f1) == (-1.5, 3 / 4, 3 / 4)


def test_each_measure_has_its_own_threshold():
    """The second, half right, is worth answering for F1 only; the third, wrong, for neither: the lowest is taken."""
    golds, guesses = {"p": ["cat"], "q": ["red dog"], "r": ["owl"]}, {"p": "cat", "q": "dog", "r": "fox"}
    nulls = {"p": 0.5, "q": 1.5, "r": 2.5}
    by_f1, by_exact = best_threshold(golds, guesses, nulls, "f1"), best_threshold(golds, guesses, nulls, "exact")
    assert (by_f1.threshold, by_exact.threshold) == (2.0, 1.0)
    assert (by_f1.exact_match, by_f1.f1) == pytest.approx((1 / 3, (1 + 2 / 3) / 3))
    assert (by_exact.exact_match, by_exact.f1) == pytest.approx((1 / 3, 1 / 3))


def test_questions_with_one_null_score_are_answered_together():
    """Answering only the first would score 2 of 2, but no threshold does that."""
    best = best_threshold({"p": ["cat"], "q": []}, {"p": "cat", "q": "fox"}, {"p": 1.0, "q": 1.0})
    assert best.f1 == 0.5


@pytest.mark.parametrize(("null", "threshold"), [(3.0, 0.0), (0.25, -0.75), (-3.0, -4.0)])
def test_where_no_answer_is_best_the_threshold_gives_none(null, threshold):
    best = best_threshold({"p": []}, {"p": "cat"}, {"p": null})
    assert (best.threshold, best.f1) == (threshold, 1.0)
    assert null > best.threshold


@given(QUESTIONS, st.sampled_from(["exact", "f1"]))
@settings(max_examples=200, deadline=None)
def test_no_threshold_is_better_than_the_best(questions, measure):
    """The plain way: empty the answers above each threshold, and score them all again."""
    golds = {question: texts for question, (texts, _, _) in questions.items()}
    nulls = {question: float(null) for question, (_, _, null) in questions.items()}

    def scores_at(threshold: float) -> tuple[float, float]:
        kept = {question: guess for question, (_, guess, _) in questions.items() if not nulls[question] > threshold}
        scores = score_answers(golds, kept)
        return scores.exact_match, scores.f1

    best = best_threshold(golds, {question: guess for question, (_, guess, _) in questions.items()}, nulls, measure)
    assert (best.exact_match, best.f1) == pytest.approx(scores_at(best.threshold))
    place = ("exact", "f1").index(measure)
    every = max(scores_at(threshold)[place] for threshold in (-99.0, *nulls.values()))
    assert (best.exact_match, best.f1)[place] == pytest.approx(every)


@pytest.mark.parametrize("last", [1.0, math.nextafter(-2.0, 0), math.inf])
def test_a_threshold_is_not_the_null_score_of_a_question(last):
    """A last bit that another batch changes must not decide, unless a bit is all that tells two questions apart."""
    best = best_threshold({"p": ["cat"], "q": []}, {"p": "cat", "q": "fox"}, {"p": -2.0, "q": last})
    assert best.f1 == 1.0
    assert -2.0 <= best.threshold < last
    assert (best.threshold > -2.0) == (last > -1.9)
    assert best_threshold({"p": ["cat"]}, {"p": "cat"}, {"p": -2.0}).threshold == -1.0


def test_thousands_of_questions_are_swept_in_one_go():
    """One in two is answerable, and null scores tell them apart but for a few: about 0 is best."""
    draw = random.Random(3)
    golds = {str(number): ["cat"] if number % 2 else [] for number in range(6000)}
    nulls = {question: draw.gauss(-2 if texts else 2, 1) for question, texts in golds.items()}
    best = best_threshold(golds, dict.fromkeys(golds, "cat"), nulls)
    assert abs(best.threshold) < 0.5
    assert best.f1 == best.exact_match > 0.97


@pytest.mark.parametrize("nulls", [{}, {"p": math.nan}, {"p": -math.inf}])
def test_a_question_needs_a_null_score(nulls):
    with pytest.raises(InputError, match="'p'"):
        best_threshold({"p": ["cat"]}, {"p": "cat"}, nulls)


@pytest.mark.parametrize("score", [score_answers, score_chinese, lambda *answers: best_threshold(*answers, {})])
def test_without_questions_there_is_no_score(score):
    with pytest.raises(InputError, match="nothing to score"):
        score({}, {"p": "cat"})


def test_chinese_matches_but_for_case_and_listed_punctuation():
    assert chinese_exact_match("《红楼梦》。", ["红楼梦"]) == 1.0
    assert chinese_exact_match(" NBA-2K：18 ", ["nba2k18"]) == 1.0
    assert chinese_exact_match("红楼", ["红楼梦"]) == 0.0
    assert chinese_exact_match("红楼", ["红楼梦", "红楼"]) == 1.0
    assert chinese_exact_match("等……", ["等"]) == 0.0  # the official list misses the ellipsis
    assert chinese_exact_match("3.", ["3"]) == 0.0  # and has no ASCII stop
    assert chinese_exact_match("a b", ["ab"]) == 0.0  # nor spaces


def test_chinese_shares_a_run_and_not_single_characters():
    """上海大学 in 在上海的大学: the longest run is 上海 or 大学, 2 characters of 4 and 6."""
    assert chinese_f1("上海大学", ["在上海的大学"]) == pytest.approx(2 * 2 / (4 + 6))
    assert chinese_f1("学大海上", ["上海大学"]) == pytest.approx(2 * 1 / (4 + 4))
    assert chinese_f1("北京", ["上海"]) == 0.0
    assert chinese_f1("上海", ["北京", "上海市"]) == pytest.approx(2 * 2 / (2 + 3))


def test_a_foreign_word_or_number_counts_as_one():
    """1998, 年, 加, 入, nba, 联, 盟 are 7; nba, 联, 盟 are 3 of them. Punctuation does not count."""
    assert chinese_f1("NBA联盟。", ["1998年加入nba联盟"]) == pytest.approx(2 * 3 / (3 + 7))
    assert chinese_f1("1,000.5米", ["1,000.5 千米"]) == pytest.approx(2 * 1 / (2 + 3))
    assert chinese_f1("19", ["1998"]) == 0.0
    assert chinese_f1("a,b", ["b"]) == pytest.approx(2 * 1 / (3 + 1))  # a comma before no digit stands alone
    assert chinese_f1("20℃", ["20"]) == 0.0
    assert chinese_f1(".42亿", ["11.42亿"]) == pytest.approx(2 * 1 / (2 + 2))  # .42 is one number, and another
    assert chinese_f1("50%", ["50"]) == pytest.approx(2 * 1 / (2 + 1))


def test_dropped_punctuation_joins_what_it_parted():
    """mi-24 becomes mi24, one word, and 《红》、《楼》 the run 红楼."""
    assert chinese_f1("Mi-24直升机", ["mi24"]) == pytest.approx(2 * 1 / (4 + 1))
    assert chinese_f1("红楼", ["《红》、《楼》"]) == 1.0


def test_a_long_answer_with_a_common_character_is_not_cut_short():
    text = "的" * 150 + "书" * 150
    assert chinese_f1("我" + text, [text]) == pytest.approx(2 * 300 / (301 + 300))


def test_the_scores_of_a_chinese_set():
    """Exact: p of 3. F1: 1, then 2 of 2 and 2 of 3 characters, then nothing for the missing one."""
    scores = score_chinese({"p": ["北京。"], "q": ["上海市"], "r": ["广州"]}, {"p": "北京", "q": "上海"})
    assert scores == AnswerScores(1 / 3, pytest.approx(1.8 / 3), 1 / 3, pytest.approx(1.8 / 3), None, 3, 0)


def test_a_chinese_question_without_answer_wants_an_empty_guess():
    scores = score_chinese({"p": [], "q": [""], "r": []}, {"p": "", "q": "。", "r": "北京"})
    assert scores == AnswerScores(2 / 3, 2 / 3, None, None, 2 / 3, 0, 3)
