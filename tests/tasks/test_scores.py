"""Scores of labels and numbers: worked by hand, and beside scikit-learn and SciPy."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics
from sklearn.preprocessing import MultiLabelBinarizer

from bertsmith.errors import InputError
from bertsmith.tasks import scores
from bertsmith.tasks.scores import (
    CalibrationBin,
    ClassScore,
    accuracy,
    binary_f1,
    calibration,
    confusion,
    macro_f1,
    matthews,
    micro_f1,
    multilabel_f1,
    paired_bootstrap,
    pearson,
    per_class,
    spearman,
)

GOLDS = ["cat", "cat", "cat", "dog", "dog", "owl"]
GUESSES = ["cat", "cat", "dog", "dog", "cat", "fox"]
LABEL_PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abce")), min_size=1, max_size=12)


def test_the_scores_of_six_animals():
    """Cats: 2 of 3 guesses and 2 of 3 golds. Dogs: 1 of 2 and 1 of 2. Owls are missed, a fox is made up."""
    assert accuracy(GOLDS, GUESSES) == micro_f1(GOLDS, GUESSES) == pytest.approx(3 / 6)
    assert binary_f1(GOLDS, GUESSES, "cat") == pytest.approx(2 / 3)
    assert macro_f1(GOLDS, GUESSES) == pytest.approx((2 / 3 + 1 / 2 + 0 + 0) / 4)
    assert per_class(GOLDS, GUESSES, ["owl", "cat", "cow"]) == {
        "owl": ClassScore(0, 0, 0, 1),
        "cat": ClassScore(2 / 3, 2 / 3, 2 / 3, 3),
        "cow": ClassScore(0, 0, 0, 0),
    }


def test_precision_and_recall_are_not_each_other():
    """Three guesses of which one is right, and that one is all there was."""
    score = per_class(["x", "-", "-"], ["x", "x", "x"], ["x"])["x"]
    assert (score.precision, score.recall, score.f1, score.support) == (1 / 3, 1, 0.5, 1)


def test_rows_of_the_confusion_are_gold():
    table = confusion(GOLDS, GUESSES, ["cat", "dog", "owl", "fox"])
    assert table == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_the_confusion_does_not_lose_a_label():
    with pytest.raises(InputError, match="'fox'"):
        confusion(GOLDS, GUESSES, ["cat", "dog", "owl"])


def test_matthews_of_two_classes():
    """3 true and 2 false positives, 4 true and 1 false negatives: (3·4 − 2·1) / √(5·4·6·5)."""
    golds = ["1"] * 4 + ["0"] * 6
    guesses = ["1"] * 3 + ["0"] + ["1"] * 2 + ["0"] * 4
    assert matthews(golds, guesses) == pytest.approx(10 / 600**0.5)
    swapped = ["0" if guess == "1" else "1" for guess in guesses]
    assert matthews(golds, swapped) == pytest.approx(-10 / 600**0.5)


@pytest.mark.parametrize(("golds", "guesses"), [("aabb", "aaaa"), ("aaaa", "aabb"), ("a", "a")])
def test_matthews_is_zero_where_it_is_undefined(golds, guesses):
    assert matthews(golds, guesses) == 0.0


@given(LABEL_PAIRS)
@settings(max_examples=60, deadline=None)
def test_labels_are_scored_as_scikit_learn_does(pairs):
    golds, guesses = [list(side) for side in zip(*pairs, strict=True)]
    labels = sorted({*golds, *guesses})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of every class that is missing on one side
        assert accuracy(golds, guesses) == pytest.approx(metrics.accuracy_score(golds, guesses))
        for average, ours in (("macro", macro_f1), ("micro", micro_f1)):
            theirs = metrics.f1_score(golds, guesses, average=average, zero_division=0)
            assert ours(golds, guesses) == pytest.approx(theirs)
        assert matthews(golds, guesses) == pytest.approx(metrics.matthews_corrcoef(golds, guesses))
        assert confusion(golds, guesses, labels) == metrics.confusion_matrix(golds, guesses, labels=labels).tolist()
        columns = metrics.precision_recall_fscore_support(golds, guesses, labels=labels, zero_division=0)
    for label, row in zip(labels, zip(*columns, strict=True), strict=True):
        score = per_class(golds, guesses, labels)[label]
        assert (score.precision, score.recall, score.f1, score.support) == pytest.approx(row)
        assert binary_f1(golds, guesses, label) == score.f1


def test_several_labels_for_one_example():
    """All: 2 right of 4 guessed and 3 gold. By class: a 2/2, b 0 of 1, c 0 of 2."""
    golds, guesses = [["a", "b"], ["a"], []], [["a"], ["c", "a"], ["c"]]
    assert multilabel_f1(golds, guesses) == pytest.approx(2 * 2 / (4 + 3))
    assert multilabel_f1(golds, guesses, "macro") == pytest.approx((1 + 0 + 0) / 3)


def test_a_label_counts_once_for_an_example():
    assert multilabel_f1([["a", "a"]], [["a", "b", "b"]]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_examples_without_any_label_score_nothing(average):
    assert multilabel_f1([[], []], [[], []], average) == 0.0


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abce"))), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_sets_of_labels_are_scored_as_scikit_learn_does(pairs):
    golds, guesses = [list(side) for side in zip(*pairs, strict=True)]
    classes = sorted(set().union(*golds, *guesses))
    assume(len(classes) > 1)  # of one class alone scikit-learn makes something else
    table = MultiLabelBinarizer(classes=classes)
    gold_table, guess_table = table.fit_transform(golds), table.fit_transform(guesses)
    for average in ("micro", "macro"):
        theirs = metrics.f1_score(gold_table, guess_table, average=average, zero_division=0)
        assert multilabel_f1(golds, guesses, average) == pytest.approx(theirs)


def test_the_correlation_of_four_points():
    """Deviations −1.5 −0.5 0.5 1.5 and −1.5 0.5 −0.5 1.5: 4 of 5. Ranks are the values themselves."""
    assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_ranks_see_order_and_not_distance():
    assert spearman([1, 2, 3], [1, 10, 1000]) == pytest.approx(1)
    assert pearson([1, 2, 3], [1, 10, 1000]) < 0.9
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_equal_values_share_their_mean_rank():
    """Ranks 1 2.5 2.5 4 beside 1 2 3 4: deviations give 4.5 / √(4.5 · 5)."""
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_a_constant_side_has_no_correlation(correlation):
    assert correlation([0.1, 0.1, 0.1], [1, 2, 3]) == 0.0
    assert correlation([1, 2, 3], [0.1, 0.1, 0.1]) == 0.0
    assert correlation([1], [1]) == 0.0


def test_tiny_numbers_correlate_like_others():
    assert pearson([1e-200, 2e-200, 4e-200], [1, 2, 4]) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(-3, 3)), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_correlations_are_those_of_scipy(pairs):
    golds, guesses = [[round(value, 3) for value in side] for side in zip(*pairs, strict=True)]
    if len(set(golds)) == 1 or len(set(guesses)) == 1:
        return
    assert pearson(golds, guesses) == pytest.approx(stats.pearsonr(golds, guesses).statistic, abs=1e-9)
    assert spearman(golds, guesses) == pytest.approx(stats.spearmanr(golds, guesses).statistic, abs=1e-9)


def test_a_number_that_is_none_is_refused():
    with pytest.raises(InputError, match="finite"):
        pearson([1, 2], [1, float("nan")])


def test_the_calibration_of_five_examples():
    """Two bins: 0.2 and 0.5 with one right of two, 0.6, 0.8 and 1.0 with two of three.

    The gaps are |0.5 − 0.35| for 2 of 5 and |2/3 − 0.8| for 3 of 5.
    """
    result = calibration([0.2, 0.6, 0.5, 1.0, 0.8], [True, True, False, True, False], bins=2)
    first, second = result.bins
    assert (first.low, first.high, first.count, first.accuracy) == (0, 0.5, 2, 0.5)
    assert first.confidence == pytest.approx(0.35)
    assert (second.low, second.high, second.count) == (0.5, 1, 3)
    assert (second.confidence, second.accuracy) == pytest.approx((0.8, 2 / 3))
    assert result.error == pytest.approx(2 / 5 * 0.15 + 3 / 5 * (0.8 - 2 / 3))


def test_a_bin_holds_its_upper_edge_and_the_first_one_nothing():
    places = [calibration([value / 10], [True]).bins for value in range(11)]
    assert [[part.count for part in bins].index(1) for bins in places] == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert places[0][1] == CalibrationBin(0.1, 0.2, 0, 0.0, 0.0)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_confidence_is_a_share(value):
    with pytest.raises(InputError):
        calibration([0.5, value], [True, True])


def test_the_bootstrap_of_two_examples():
    """Differences 1 and 0: the drawn means are 0, ½, ½, 1, and half of them are ½ away from the observed ½."""
    result = paired_bootstrap([1, 1], [0, 1], rounds=4000)
    assert (result.difference, result.low, result.high) == (0.5, 0.0, 1.0)
    assert result.p_value == pytest.approx(0.5, abs=0.03)


def test_the_bootstrap_agrees_with_the_normal_law():
    """Of 400 differences with mean m and deviation s, the interval is m ± 1.96 s/20."""
    gaps = np.random.default_rng(5).normal(0.1, 1, 400)
    result = paired_bootstrap(gaps, np.zeros(400))
    half = 1.96 * gaps.std() / 20
    assert (result.low, result.high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.1 * half)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(gaps.mean()) / (gaps.std() / 20)), abs=0.02)


def test_the_bootstrap_has_two_sides():
    first, second = [1, 0, 1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 1, 1, 0, 1]
    forth, back = paired_bootstrap(first, second), paired_bootstrap(second, first)
    assert forth.difference == -back.difference == 0.25
    assert forth.p_value == back.p_value
    assert (forth.low, forth.high) == (-back.high, -back.low)


def test_the_bootstrap_of_thirds_is_that_of_whole_numbers():
    """As the means over three seeds are: draws that are exactly as far away count, however their sums are rounded."""
    first, second = np.random.default_rng(2).integers(4, size=(2, 40))
    whole, thirds = paired_bootstrap(first, second), paired_bootstrap(first / 3, second / 3)
    assert thirds.p_value == whole.p_value
    assert thirds.difference == pytest.approx(whole.difference / 3)


def test_equal_systems_do_not_differ_and_a_p_value_is_never_zero():
    assert paired_bootstrap([0.3, 0.7], [0.3, 0.7], rounds=99).p_value == 1.0
    assert paired_bootstrap([1.0] * 9, [0.5] * 9, rounds=99).p_value == pytest.approx(1 / 100)


def test_the_bootstrap_follows_its_seed_and_not_its_memory(monkeypatch):
    first, second = np.random.default_rng(1).random((2, 30))
    whole = paired_bootstrap(first, second, rounds=500, seed=3)
    assert whole != paired_bootstrap(first, second, rounds=500, seed=4)
    monkeypatch.setattr(scores, "_DRAWS_AT_ONCE", 64)
    assert paired_bootstrap(first, second, rounds=500, seed=3) == whole


@pytest.mark.parametrize(
    "score", [accuracy, macro_f1, micro_f1, matthews, multilabel_f1, pearson, spearman, calibration, paired_bootstrap]
)
def test_lists_must_be_equally_long_and_hold_something(score):
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])
    with pytest.raises(InputError, match="not 2 and 1"):
        score([1, 0], [1])


@pytest.mark.parametrize(
    "call", [lambda: calibration([1], [True], bins=0), lambda: paired_bootstrap([1], [0], rounds=0)]
)
def test_there_is_at_least_one_bin_and_one_round(call):
    with pytest.raises(InputError, match="at least 1"):
        call()


def test_importing_the_scores_loads_no_heavy_library():
    code = "import sys, bertsmith.tasks.scores; print(sorted({'sklearn', 'scipy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
