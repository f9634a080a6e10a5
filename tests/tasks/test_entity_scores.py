"""Scores of entities: worked by hand, conlleval's published example, and beside seqeval."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from bertsmith.errors import InputError
from bertsmith.tasks.entity_scores import Span, score_entities, spans_of
from bertsmith.tasks.scores import ClassScore

TAGS = st.sampled_from(["O", *(f"{prefix}-{label}" for prefix in "BIES" for label in ("PER", "LOC", "WORK-OF-ART"))])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), min_size=1, max_size=4).filter(any)


def read(tags: str) -> list[tuple[str, int, int]]:
    """The spans of tags such as "B-X I-X O", as tuples."""
    return [(span.label, span.start, span.stop) for span in spans_of(tags.split())]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("B-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("O I-X I-X O", [("X", 1, 3)]),  # IOB1: an entity begins without B
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),  # and B parts two of one label
        ("I-X I-Y", [("X", 0, 1), ("Y", 1, 2)]),  # another label is another entity
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),
        ("S-X S-X B-X E-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 4)]),
        ("B-X I-X E-X I-X", [("X", 0, 3), ("X", 3, 4)]),  # nothing goes on after an end
        ("S-X I-X", [("X", 0, 1), ("X", 1, 2)]),
        ("E-X E-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X S-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),  # a label may hold a hyphen
        ("B I O B", [("", 0, 2), ("", 3, 4)]),
    ],
)
def test_where_entities_begin_and_end(tags, spans):
    assert read(tags) == spans


@pytest.mark.parametrize("tag", ["PER", "X-PER", "", "b-PER", "BI-PER"])
def test_a_tag_of_no_scheme_is_refused(tag):
    with pytest.raises(InputError, match=repr(tag)):
        spans_of(["O", tag])


def test_plain_tags_are_entities_of_one_word_whatever_they_are_called():
    tags = ["O", "V", "E", "E", "I", "I", "B-X", "-LRB-"]
    assert spans_of(tags, plain=True) == [Span(tag, place, place + 1) for place, tag in enumerate(tags)]
    assert score_entities([tags], [["O", "V", "E", "B", "I", "I", "B-X", "S"]], plain=True).f1 == 0.75


def test_middle_last_and_unit_are_known_by_their_other_names():
    assert spans_of(["B-X", "M-X", "E-X", "S-Y"]) == [Span("X", 0, 3), Span("Y", 3, 4)]
    assert spans_of(["B-X", "I-X", "L-X", "U-Y", "U-Y"]) == [Span("X", 0, 3), Span("Y", 3, 4), Span("Y", 4, 5)]
    assert spans_of(list("SBMES")) == [Span("", 0, 1), Span("", 1, 4), Span("", 4, 5)]  # words of a Chinese text


def test_an_entity_is_right_as_a_whole_or_wrong():
    """Gold: PER 0–2, LOC 3–4, ORG 5–7. Guessed: PER 0–1, LOC 3–4, PER 5–7, LOC 7–8. One is right."""
    golds = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG", "I-ORG", "O"]]
    guesses = [["B-PER", "O", "O", "B-LOC", "O", "B-PER", "I-PER", "B-LOC"]]
    scores = score_entities(golds, guesses)
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((1 / 4, 1 / 3, 2 / 7))
    assert scores.token_accuracy == 4 / 8
    assert list(scores.per_class) == ["LOC", "ORG", "PER"]
    assert scores.per_class["LOC"] == ClassScore(1 / 2, 1, pytest.approx(2 / 3), 1)
    assert scores.per_class["ORG"] == ClassScore(0, 0, 0, 1)
    assert scores.per_class["PER"] == ClassScore(0, 0, 0, 1)


def test_entities_end_with_their_sentence_and_are_compared_within_it():
    assert score_entities([["B-X"], ["I-X"]], [["B-X"], ["B-X"]]).f1 == 1.0
    assert score_entities([["B-X"], ["O"]], [["O"], ["B-X"]]).f1 == 0.0


def test_the_scheme_does_not_change_the_entities():
    """Two sentences of conlleval's page, tagged in IOB2 and guessed in IOB1: all five chunks are found."""
    golds = [["B-NP", "B-NP", "I-NP", "I-NP", "O"], ["B-NP", "B-VP", "B-NP", "I-NP"]]
    guesses = [["I-NP", "B-NP", "I-NP", "I-NP", "O"], ["I-NP", "B-VP", "B-NP", "I-NP"]]
    scores = score_entities(golds, guesses)
    assert (scores.f1, scores.token_accuracy) == (1.0, 7 / 9)
    assert {label: score.support for label, score in scores.per_class.items()} == {"NP": 4, "VP": 1}


def test_the_published_example_of_conlleval():
    """Chunks of 961 words: right, found and gold by label, and the percentages that conlleval prints for them."""
    counts = {
        "ADJP": (0, 1, 6),
        "ADVP": (5, 11, 8),
        "NP": (206, 317, 262),
        "PP": (89, 107, 90),
        "SBAR": (2, 3, 6),
        "VP": (69, 100, 87),
    }
    golds, guesses = [], []
    for label, (right, found, gold) in counts.items():
        both = [(f"B-{label}", f"B-{label}")] * right
        both += [("O", f"I-{label}")] * (found - right) + [(f"I-{label}", "O")] * (gold - right)
        golds += [[tag] for tag, _ in both]
        guesses += [[tag] for _, tag in both]
    scores = score_entities(golds, guesses)
    published = {
        "ADJP": (0, 0, 0),
        "ADVP": (45.45, 62.50, 52.63),
        "NP": (64.98, 78.63, 71.16),
        "PP": (83.18, 98.89, 90.36),
        "SBAR": (66.67, 33.33, 44.44),
        "VP": (69.00, 79.31, 73.80),
    }
    assert percent(scores) == (68.83, 80.83, 74.35)
    assert {label: percent(score) for label, score in scores.per_class.items()} == published


def percent(score) -> tuple[float, float, float]:
    """Rounded as conlleval prints it."""
    return tuple(round(100 * value, 2) for value in (score.precision, score.recall, score.f1))


def test_sentences_without_entities_score_nothing():
    scores = score_entities([["O", "O"], []], [["O", "O"], []])
    assert (scores.precision, scores.recall, scores.f1, scores.token_accuracy) == (0.0, 0.0, 0.0, 1.0)
    assert scores.per_class == {}


@given(st.lists(TAGS, max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_entities_are_those_of_seqeval(tags):
    assert spans_of(tags) == [Span(label, start, last + 1) for label, start, last in get_entities(tags)]


@given(SENTENCES)
@settings(max_examples=100, deadline=None)
def test_the_scores_are_those_of_seqeval(sentences):
    golds = [[gold for gold, _ in sentence] for sentence in sentences]
    guesses = [[guess for _, guess in sentence] for sentence in sentences]
    scores = score_entities(golds, guesses)
    if not scores.per_class:
        return  # seqeval cannot report on nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(golds, guesses, output_dict=True, zero_division=0)
    whole = report["micro avg"]
    assert {*scores.per_class} == {label for label in report if not label.endswith(" avg")}
    assert (scores.precision, scores.recall) == pytest.approx((whole["precision"], whole["recall"]))
    assert scores.f1 == pytest.approx(whole["f1-score"])
    for label, score in scores.per_class.items():
        row = report[label]
        theirs = row["precision"], row["recall"], row["f1-score"], row["support"]
        assert (score.precision, score.recall, score.f1, score.support) == pytest.approx(theirs)


def test_sentences_must_have_as_many_guesses_as_words():
    with pytest.raises(InputError, match="not 1 and 2"):
        score_entities([["O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="sentence 2 has 1 gold tags but 2 guesses"):
        score_entities([["O"], ["O"]], [["O"], ["O", "O"]])


@pytest.mark.parametrize("sentences", [[], [[]], [[], []]])
def test_without_words_there_is_no_score(sentences):
    with pytest.raises(InputError, match="nothing to score"):
        score_entities(sentences, sentences)
