"""What `tag` reads: words with tags, running text with spans of characters, and what is refused of both."""

from __future__ import annotations

import pytest

from bertsmith.errors import DataError
from bertsmith.tasks.tag import Tag
from finetuning.small_tasks import write_json_lines, write_lines


def task_of(**options):
    return Tag.of(options, ("O", "B-PER", "I-PER", "B-LOC"))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"tokens": ["a"], "tags": ["O", "O"]}, "1 words and 2 tags; correct or remove the row"),
        ({"tokens": [], "tags": []}, "no words, or an empty one; correct or remove the row"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "no words, or an empty one"),
        ({"tokens": "a b", "tags": ["O", "O"]}, "expected lists of words and of tags as text, found 'a b'"),
        ({"tokens": ["a"], "tags": [3]}, "expected lists of words and of tags as text, found [3]"),
        ({"tokens": ["a"], "tags": None}, "expected lists of words and of tags as text, found None"),
        ({"tokens": ["a"], "tags": ["NN"]}, "'NN' is not a tag (O, B-NAME, I-NAME and the like)"),
        ({"tokens": ["a"]}, "no column 'tags'; there are tokens"),
        ({"text": "a"}, 'there is text, but neither tokens with tags nor entities; write "entities": [] where it'),
    ],
)
def test_a_broken_row_is_refused_with_file_and_line(tmp_path, row, what):
    path = write_json_lines(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": ["O"]}, row])
    with pytest.raises(DataError) as refusal:
        list(task_of().read(str(path)))
    assert str(refusal.value).startswith(f"{path}, line 2: {what}")


def test_a_column_of_words_that_is_not_there_is_named(tmp_path):
    """Though there is text: to call its words no entities would be wrong."""
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": "a", "words": ["a"], "tags": ["O"]}])
    with pytest.raises(DataError, match=r"line 1: no column 'wrods'; there are text, words, tags: name one with"):
        list(task_of(columns={"tokens": "wrods"}).read(str(path)))


def test_lists_may_stand_as_text_in_a_table(tmp_path):
    """As `DataFrame.to_csv` writes them, or tools for labelling."""
    path = write_lines(tmp_path / "a.csv", ["tokens,tags", """"['anna', 'lives']","['B-PER', 'O']\""""])
    (found,) = task_of().read(str(path))
    assert (found.words, found.tags) == (("anna", "lives"), ("B-PER", "O"))
    path = write_lines(tmp_path / "b.csv", ["text,entities", 'anna lives,"[[0, 4, ""PER""]]"', "she lives,[]"])
    assert [found.tags for found in task_of().read(str(path))] == [("B-PER", "O"), ("O", "O")]
    path = write_lines(tmp_path / "b.csv", ["text,entities", """anna lives,"[(0, 4, 'PER')]\""""])  # as spaCy has them
    assert [found.tags for found in task_of().read(str(path))] == [("B-PER", "O")]
    path = write_lines(tmp_path / "c.csv", ["word,tag", "anna,B-PER"])
    with pytest.raises(DataError, match=r"c\.csv, line 2: a word a line is read from \.tsv, \.conll and \.txt"):
        list(task_of(columns={"word": "word", "tag": "tag"}).read(str(path)))


def test_words_have_their_places_in_the_text_that_stands_beside_them(tmp_path):
    rows = [
        {"text": " Anna  Boris, Rome.", "tokens": ["Anna", "Boris", ",", "Rome", "."]},
        {"text": "Anna and Boris", "tokens": ["Anna", "Boris"]},  # not all of its words
        {"text": None, "tokens": ["Anna", "Boris"]},
    ]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    first, *others = task_of().read(str(path), labelled=False)
    assert first.text == rows[0]["text"]
    assert [first.text[start:end] for start, end in first.offsets] == rows[0]["tokens"]
    assert [(found.text, found.offsets[1]) for found in others] == [("Anna Boris", (5, 10))] * 2


def test_prediction_does_not_look_at_tags(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": ["NN"]}, {"tokens": ["b"], "tags": 3}])
    assert [example.tags for example in task_of().read(str(path), labelled=False)] == [None, None]
    words = write_lines(tmp_path / "a.txt", ["anna ?", "lives ?"])
    assert [example.words for example in task_of().read(str(words), labelled=False)] == [("anna", "lives")]


@pytest.mark.parametrize("line", ["anna lives in paris", "Boris was.", "a\tgood\triver"])
def test_running_text_is_not_taken_for_words(tmp_path, line):
    """With as many words a line it would look like columns, and all but the first would be lost."""
    path = write_lines(tmp_path / "a.txt", [line, line])
    with pytest.raises(
        DataError, match=r"a\.txt, line 1: .* is more than a word and its tag; running text goes into J"
    ):
        list(task_of().read(str(path), labelled=False))
    tagged = write_lines(tmp_path / "b.txt", ["anna NNP B-PER", "lives VB O"])
    assert [example.words for example in task_of().read(str(tagged), labelled=False)] == [("anna", "lives")]


@pytest.mark.parametrize(
    "line", ["Anna lives in Rome .", "She was born in 1867", "ANNA ROME", "محمد يعيش في باريس", "小明 住在 北京"]
)
def test_a_sentence_is_no_word_whatever_it_ends_in(tmp_path, line):
    path = write_lines(tmp_path / "a.txt", [line])
    with pytest.raises(
        DataError, match=r"a\.txt, line 1: .* is more than a word and its tag; running text goes into J"
    ):
        list(task_of().read(str(path), labelled=False))


def test_a_sentence_is_no_word_where_tags_are_plain(tmp_path):
    task = Tag.of({"plain": True}, ("DET", "NOUN", ".", "$"))
    lines = ["the x DET", "cat y NOUN", "US$ z $", ". z ."]
    tagged = write_lines(tmp_path / "a.txt", lines)
    assert [each.words for each in task.read(str(tagged), labelled=False)] == [("the", "cat", "US$", ".")]
    untold = write_lines(tmp_path / "c.txt", ["the ?", "cat _"])
    assert [each.words for each in task.read(str(untold), labelled=False)] == [("the", "cat")]
    for number, line in enumerate(("the cat sleeps", "good morning", "I saw Rome .")):
        running = write_lines(tmp_path / f"{number}.txt", [line])
        with pytest.raises(DataError, match=rf"{number}\.txt, line 1: '{line}' is more than a word and its tag"):
            list(task.read(str(running), labelled=False))


def test_tags_of_words_in_chinese_are_seen_where_a_space_is_before_them(tmp_path):
    path = write_lines(tmp_path / "a.txt", ["中 B", "国 E", "好 S"])
    task = Tag.of({"characters": True}, ("B", "E", "S"))
    (found,) = task.read(str(path), labelled=False)
    assert (found.words, found.tags) == (("中", "国", "好"), None)


def test_characters_are_put_together_without_spaces(tmp_path):
    characters = list("iPhone8很好，2018年")
    tags = ["O"] * 10 + ["B-PER", *["I-PER"] * 4]
    path = write_lines(tmp_path / "a.txt", [f"{one} {tag}" for one, tag in zip(characters, tags, strict=True)])
    (found,) = task_of(characters=True).read(str(path))
    assert found.text == "iPhone8很好，2018年"
    assert found.text[slice(*found.offsets[-1])] == "年"
    rows = write_json_lines(tmp_path / "a.jsonl", [{"tokens": characters, "tags": tags}])
    (row,) = task_of(characters=True).read(str(rows))
    assert (row.text, row.offsets) == (found.text, found.offsets)
    assert task_of(characters=True).example(tokens=characters).text == found.text


def test_a_document_that_comes_back_is_refused_where_it_would_be_read_as_one(tmp_path):
    rows = [{"tokens": ["a"], "tags": ["O"], "document": name} for name in ("x", "y", "x")]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    assert [example.document for example in task_of().read(str(path))] == [0, 1, 0]
    with pytest.raises(DataError, match=r"line 3: the document 'x' goes on after another has begun; put its rows tog"):
        list(task_of(context=True).read(str(path)))


def test_conll_columns_in_a_tsv_file_are_read_where_they_are_named(tmp_path):
    path = write_lines(tmp_path / "a.tsv", ["anna\tB-PER", "lives\tO", "", "rome\tB-LOC"])
    found = list(task_of(columns={"word": 1, "tag": 2}).read(str(path)))
    assert [(each.words, each.tags) for each in found] == [(("anna", "lives"), ("B-PER", "O")), (("rome",), ("B-LOC",))]


WORDS = [
    ("cafe\u0301 was", ["cafe\u0301", "was"]),
    ("दिल्ली में", ["दिल्ली", "में"]),
    ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
    ("می\u200cخواهم", ["می\u200cخواهم"]),
    ("北京a好", ["北", "京", "a", "好"]),
    ("\U00020000\U00020001a", ["\U00020000", "\U00020001", "a"]),
    ("a, (b)", ["a", ",", "(", "b", ")"]),
    ("go \U0001f468\u200d\U0001f469 on", ["go", "\U0001f468\u200d", "\U0001f469", "on"]),
    ("\u2764\ufe0f b", ["\u2764\ufe0f", "b"]),
    (" \u0301 a", ["\u0301", "a"]),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_of_running_text_keep_their_marks(text, words):
    found = task_of().example(text)
    assert list(found.words) == words
    assert [text[start:end] for start, end in found.offsets] == words


@pytest.mark.parametrize(
    ("spans", "what"),
    [({"PER": {"boris": [[0, 3]]}}, "the entity 'boris' is not from 0 to 4, where 'anna' is: it is not in the text"),
     ([{"start": 0, "end": 4, "label": "LOC", "text": "paris"}],
      "the entity 'paris' is not from 0 to 4, where 'anna' is: it stands at 14"),
     ([{"start": 0, "end": 4, "label": "PER", "text": 7}], "the entity 7 is not from 0 to 4")],
)  # fmt: skip
def test_an_entity_that_is_not_where_it_says_is_refused(tmp_path, spans, what):
    text = "anna lives in paris"
    sound = {"text": text, "entities": [{"start": 14, "end": 19, "label": "LOC", "text": "paris"}]}
    path = write_json_lines(tmp_path / "a.jsonl", [sound, {"text": text, "entities": spans}])
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: " + what):
        list(task_of().read(str(path)))


def test_running_text_by_characters_where_the_training_file_had_it_so():
    text = "他2005年加入 IBM。"
    assert Tag.of({}).example(text).words == ("他", "2005", "年", "加", "入", "IBM", "。")
    found = Tag.of({"characters": True}).example(text)
    assert found.words == tuple(text.replace(" ", ""))
    assert [text[start:end] for start, end in found.offsets] == list(found.words)


def test_rows_of_a_table_are_of_the_document_that_they_name(tmp_path):
    rows = [{"tokens": ["a"], "tags": ["O"], "document": name} for name in ("x", "x", "7", 7)]
    path = write_json_lines(tmp_path / "a.jsonl", [*rows, *({"tokens": ["a"], "tags": ["O"]} for _ in range(2))])
    found = [example.document for example in task_of().read(str(path))]
    assert found == [0, 0, 1, 1, 2, 3]


MARIE = "Marie Curie, born in 華沙."
SPANS = [
    [{"start": 0, "end": 11, "label": "PER"}, {"start": 21, "end": 23, "label": "LOC"}],
    [[21, 23, "LOC"], [0, 11, "PER"], [0, 11, "PER"]],
    {"PER": {"Marie Curie": [[0, 10]]}, "LOC": {"華沙": [[21, 22]]}},
]


@pytest.mark.parametrize("spans", SPANS)
def test_running_text_with_spans_of_characters_becomes_words_with_tags(tmp_path, spans):
    """As our own predictions have them, as labelling tools write them, and as CLUE does; in any order, one twice."""
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": MARIE, "label": spans}])
    (example,) = Tag.of({}).read(str(path))
    assert example.words == ("Marie", "Curie", ",", "born", "in", "華", "沙", ".")
    assert example.tags == ("B-PER", "I-PER", "O", "O", "O", "B-LOC", "I-LOC", "O")
    (example,) = Tag.of({"characters": True}).read(str(path))
    assert "".join(example.words) == MARIE.replace(" ", "")
    assert example.tags[:11] == ("B-PER", *["I-PER"] * 9, "O")


@pytest.mark.parametrize(
    ("spans", "what"),
    [
        ([[0, 8, "PER"]], "'Marie Cu' (0–8) begins or ends inside a word; correct it, or take the text by characters"),
        ([[0, 11, "PER"], [6, 11, "ORG"]], "'Curie' (6–11) shares words with another"),
        ([[0, 99, "PER"]], "from 0 to 99 is not in a text of 24 characters"),
        ([[-1, 3, "PER"]], "from -1 to 3 is not in a text"),
        ([[3, 3, "PER"]], "from 3 to 3 is not in a text"),
        ([[True, 5, "PER"]], "from True to 5 is not in a text"),
        ([[0, 5, ""]], "the entity 'Marie' has the label ''; expected a name"),
        ([[0, 5, 7]], "the entity 'Marie' has the label 7; expected a name"),
        ([[0, 5]], "expected entities as [[START, END, LABEL], …] in the column 'entities', found [0, 5]"),
        ("PER", "expected entities as [[START, END, LABEL], …] in the column 'entities', found 'PER'"),
        ({"PER": [[0, 10]]}, "expected entities as LABEL: TEXT: [[FIRST, LAST], …]"),
        ({"PER": {"Marie": [["0", 10]]}}, "from '0' to 11 is not in a text"),
    ],
)
def test_a_span_that_cannot_be_is_refused_with_its_line(tmp_path, spans, what):
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": MARIE, "entities": []}, {"text": MARIE, "entities": spans}])
    with pytest.raises(DataError) as refusal:
        list(Tag.of({}).read(str(path)))
    assert str(refusal.value).startswith(f"{path}, line 2: ")
    assert what in str(refusal.value)


def test_rows_of_a_labelling_tool_with_tokens_of_its_own_are_read_by_their_spans(tmp_path):
    row = {
        "text": "Marie lives",
        "tokens": [{"text": "Marie", "start": 0, "end": 5, "id": 0}],
        "spans": [{"start": 0, "end": 5, "token_start": 0, "label": "PER"}],
    }
    (example,) = Tag.of({}).read(str(write_json_lines(tmp_path / "a.jsonl", [row])))
    assert (example.words, example.tags) == (("Marie", "lives"), ("B-PER", "O"))
    (unlabelled,) = Tag.of({}).read(str(tmp_path / "a.jsonl"), labelled=False)
    assert (unlabelled.words, unlabelled.tags) == (("Marie", "lives"), None)


def test_what_predict_writes_is_read_by_its_entities_and_needs_no_words(tmp_path):
    row = {"text": "Marie lives", "tags": ["B-PER", "O"], "entities": [{"start": 0, "end": 5, "label": "PER"}]}
    (example,) = Tag.of({}).read(str(write_json_lines(tmp_path / "a.jsonl", [row])))
    assert (example.words, example.tags) == (("Marie", "lives"), ("B-PER", "O"))
    path = write_json_lines(tmp_path / "b.jsonl", [{"text": "Marie", "tags": ["news"]}])
    (bare,) = Tag.of({}).read(str(path), labelled=False)
    assert (bare.words, bare.tags) == (("Marie",), None)


def test_rows_whose_document_is_null_are_each_one_of_their_own(tmp_path):
    rows = [{"tokens": ["a"], "tags": ["O"], "document": name} for name in ("x", None, None, "x")]
    found = task_of().read(str(write_json_lines(tmp_path / "a.jsonl", rows)))
    assert [example.document for example in found] == [0, 1, 2, 0]
