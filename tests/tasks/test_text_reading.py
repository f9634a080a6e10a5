"""What `classify` and `regress` read: columns, labels and pairs, and what is refused."""

from __future__ import annotations

import io
import math
import sys
from itertools import permutations
from types import SimpleNamespace

import pytest

from bertsmith.errors import ConfigError, DataError, InputError
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tables import Place
from bertsmith.tasks.texts import TextExample
from finetuning.small_tasks import make_tokenizer, write_json_lines, write_lines, write_table


def example(text, label=None, pair=None, line=1):
    return TextExample(Place("f.tsv", line), text, pair, label)


def test_columns_are_found_by_their_usual_names(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("id", "sentence1", "gold_label", "sentence2"), [(1, "a", "x", "b")])
    (found,) = Classify.of({}).read(str(path))
    assert (found.text, found.pair, found.label, found.place.line) == ("a", "b", "x", 2)


def test_a_second_text_that_comes_late_is_refused_by_its_line(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "text_b": "c", "label": "y"}]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: column 'text_b'"):
        list(Classify.of({}).read(str(path)))


def test_a_numbered_label_says_nothing_of_a_file_that_has_none(tmp_path):
    """As GLUE's CoLA: no header where it is trained, a header in the file that is to be predicted."""
    path = write_table(tmp_path / "test.tsv", ("index", "sentence"), [("0", "a"), ("1", "b")])
    task = Classify.of({"columns": {"text": 4, "label": 2}}).changed(columns={"text": "sentence"})
    assert [found.text for found in task.read(str(path), labelled=False)] == ["a", "b"]
    with pytest.raises(DataError, match="sentence"):
        list(task.read(str(path)))


def test_columns_as_told_go_before_usual_names(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("text", "other", "label"), [("a", "b", "x")])
    task = Classify.of({}).changed(columns={"text": "other"})
    (found,) = task.read(str(path))
    assert found.text == "b"
    assert task.changed(columns={"pair": "text"}).options.columns == {"text": "other", "pair": "text"}
    bare = write_lines(tmp_path / "b.tsv", ["text\tother\tx", "a\tb\tx"])
    numbered = Classify.of({"columns": {"text": 2, "label": 3}}).read(str(bare))
    assert [found.text for found in numbered] == ["other", "b"]


@pytest.mark.parametrize("name", ["label", "Labels", " score "])
def test_a_header_is_no_row_of_numbered_columns(tmp_path, name):
    path = write_table(tmp_path / "a.tsv", ("headline", name), [("a", "x")])
    with pytest.raises(DataError, match=r"a\.tsv, line 1: column 2 holds .*: this line is a header; name columns"):
        list(Classify.of({"columns": {"text": 1, "label": 2}}).read(str(path)))


def test_of_two_columns_that_could_be_the_text_one_must_be_named(tmp_path):
    """As in QNLI: else half of each pair would go unread."""
    path = write_table(tmp_path / "a.tsv", ("index", "question", "sentence", "label"), [("0", "a", "b", "x")])
    with pytest.raises(DataError, match="line 2: 'sentence' and 'question' are both here, and either could be the"):
        list(Classify.of({}).read(str(path)))
    for columns, expected in (
        ({"text": "question", "pair": "sentence"}, ("a", "b")),
        ({"text": "sentence"}, ("b", None)),
    ):
        (found,) = Classify.of({"columns": columns}).read(str(path))
        assert (found.text, found.pair) == expected


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_stray_space_makes_no_class_of_its_own(tmp_path, name):
    mark = "\t" if name == "a.tsv" else ","
    path = write_lines(tmp_path / name, [f"text{mark}label", f"a{mark}neg", f"b{mark}neg ", f"c{mark} pos"])
    task = Classify.of({})
    examples = list(task.read(str(path)))
    assert task.find_labels(examples) == ("neg", "pos")
    path = write_lines(tmp_path / name, [f"text{mark}label", f"a{mark}  "])
    with pytest.raises(DataError, match="line 2: column 'label' is empty"):
        list(task.read(str(path)))


@pytest.mark.parametrize(("first", "second", "what"), [
    ("b", None, "there is no second text, but training has one; name its column: --column pair=…"),
    (None, "b", "there is a second text, but training has none; give both files one, or none"),
])  # fmt: skip
def test_two_files_both_have_a_second_text_or_none_has(first, second, what):
    task = Classify.of({})
    with pytest.raises(DataError, match=f"^f.tsv, line 3: {what}"):
        task.check_alike(example("a", pair=first), example("a", pair=second, line=3))
    task.check_alike(example("a", pair=first), example("c", pair=first))


def test_a_column_that_cannot_be_told_is_asked_for(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("words", "class"), [("a", "x")])
    with pytest.raises(DataError, match=r"line 2: which column is the text. There are words, class; name it"):
        list(Classify.of({}).read(str(path)))
    with pytest.raises(DataError, match="line 2: which column is the label"):
        list(Classify.of({"columns": {"text": "words"}}).read(str(path)))
    with pytest.raises(DataError, match="line 2: no column 'sentence'; there are words, class"):
        list(Classify.of({"columns": {"text": "sentence", "label": "class"}}).read(str(path)))


def test_an_empty_label_is_refused_but_none_of_several_is_none(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("text", "label"), [("a", "x"), ("b", "")])
    with pytest.raises(DataError, match=r"a.tsv, line 3: column 'label' is empty; write the label, or remove the row"):
        list(Classify.of({}).read(str(path)))
    task = Classify.of({"multilabel": True})
    examples = list(task.read(str(path)))
    task = task.with_labels(task.find_labels(examples))
    assert task.labels == ("x",)
    assert [task.target(each).tolist() for each in examples] == [[[1.0]], [[0.0]]]


def test_prediction_does_not_look_at_labels(tmp_path):
    """A test file may have labels that mean nothing, as GLUE's -1."""
    path = write_table(tmp_path / "a.tsv", ("text", "label"), [("a", "-1"), ("b", "")])
    for kind in (Classify.of({}).with_labels(["x", "y"]), Regress.of({})):
        examples = list(kind.read(str(path), labelled=False))
        assert [(each.text, each.label) for each in examples] == [("a", None), ("b", None)]
        assert [item.targets for item in kind.encode(examples, make_tokenizer())] == [None, None]


def test_lines_of_plain_text_need_no_columns_whatever_the_training_file_had(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "a.txt", ["the river", "", "a, b"])
    task = Classify.of({"columns": {"text": 4, "label": 2}})
    assert [each.text for each in task.read(str(path), labelled=False)] == ["the river", "", "a, b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"one\ntwo\n"))))
    assert [each.text for each in task.read("-", labelled=False)] == ["one", "two"]
    table = write_lines(tmp_path / "b.txt", ["x\t1\t\tfour"])
    assert [each.text for each in task.read(str(table), labelled=False)] == ["four"]


def test_labels_are_ordered_as_numbers_and_then_by_name():
    task = Classify.of({})
    found = task.find_labels([example("a", label) for label in ("b", "10", "9", "a", "-1", 2, True)])
    assert found == ("-1", "2", "9", "10", "True", "a", "b")
    assert Classify.of({"labels": ("no", "yes")}).find_labels([]) == ("no", "yes")


def test_an_unknown_label_is_refused_with_those_that_are_known():
    task = Classify.of({}).with_labels(["neg", "pos"])
    with pytest.raises(DataError, match=r"f.tsv, line 9: the label 'neutral' is not one that training knows "):
        task.target(example("a", "neutral", line=9))
    with pytest.raises(DataError, match=r"f.tsv, line 1: the label is \['a'\], not one class; for several: --multil"):
        task.target(example("a", ["a"]))


def test_what_is_no_name_of_a_class_is_refused():
    """Or it would be a class of that name."""
    task, several = Classify.of({}), Classify.of({"multilabel": True})
    for kind, label in (
        (task, b"pos"),
        (task, math.nan),
        (several, [None, "a"]),
        (several, [["a"]]),
        (several, {"a": 1}),
    ):
        with pytest.raises(DataError, match=r"f.tsv, line 7: the label .* is no name of a class; correct it or remove"):
            kind.find_labels([example("x", "b"), example("x", label, line=7)])
    orders = {
        task.find_labels([example("x", name) for name in names]) for names in permutations(["nan", "0", "10", "a"])
    }
    assert orders == {("0", "10", "a", "nan")}


def test_several_classes_as_a_list_or_apart_by_a_separator():
    task = Classify.of({"multilabel": True}).with_labels(["a", "b", "0"])
    assert task.target(example("x", "a | 0")).tolist() == [[1, 0, 1]]
    assert task.target(example("x", ["b", "a"])).tolist() == [[1, 1, 0]]
    assert task.target(example("x", 0)).tolist() == [[0, 0, 1]]
    assert task.target(example("x", [])).tolist() == [[0, 0, 0]]
    commas = task.changed(separator=",")
    assert commas.target(example("x", "a,b")).tolist() == [[1, 1, 0]]
    assert task.changed(separator="|").options.separator == "|"  # which YAML would read as something else
    with pytest.raises(ConfigError, match="separator"):
        task.changed(separator="")


def test_impossible_options_are_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match="metric: matthews is for one class a text"):
        Classify.of({"multilabel": True, "metric": "matthews"})
    with pytest.raises(ConfigError, match="metric: 'f2' is not one of accuracy, f1, "):
        Classify.of({"metric": "f2"})
    with pytest.raises(ConfigError, match="positive: 'yse' is not one of the classes no, yes"):
        Classify.of({"positive": "yse"}).with_labels(["no", "yes"])
    with pytest.raises(ConfigError, match="columns: classify has no field 'txt'; there are text, pair, label"):
        Classify.of({"columns": {"txt": "text"}})
    with pytest.raises(ConfigError, match="labels: one stands there twice: no, yes, no"):
        Classify.of({"labels": ["no", "yes", "no"]})
    assert Classify.of({"labels": [0, 1]}).labels == ("0", "1")
    as_written = Classify.of({}).changed(labels="[001, 010, 1_000, 12:30, 0x1F, -7]")
    assert as_written.labels == ("001", "010", "1_000", "12:30", "0x1F", "-7")
    with pytest.raises(ConfigError, match=r"labels.*is read as false; put quotation marks around a name such as 'no'"):
        Classify.of({}).changed(labels="[no, yes]")
    with pytest.raises(ConfigError, match=r"labels.*is read as 1\.0; put quotation marks around a name such as"):
        Classify.of({}).changed(labels="[1.0, 0.0]")
    with pytest.raises(ConfigError, match=r"long.mode: "):
        Classify.of({"long": {"mode": "middle"}})
    with pytest.raises(ConfigError, match=r"task: expected options by name, found \[1\]"):
        Classify.of([1])
    assert Classify.of({}).with_labels(["0", "1"]).changed(positive="0").options.positive == "0"


@pytest.mark.parametrize("label", ["", "high", "nan", "inf", "1e300", "-1e19", 10**400, None, [1]])
def test_what_is_no_number_is_refused(label):
    with pytest.raises(
        DataError, match=r"f.tsv, line 4: .* is not a number \(up to 1e\+18\); correct it or remove the row"
    ):
        Regress.of({}).score([example("a", label, line=4)], [{"value": 1.0}])


def test_whether_there_are_second_texts_is_learned_and_then_asked_of_every_file(tmp_path):
    alone = write_table(tmp_path / "alone.tsv", ("text", "label"), [("a", "x")])
    two = write_table(tmp_path / "two.tsv", ("text", "pair", "label"), [("a", "b", "x")])
    singles, pairs = (Classify.of({}).learned([example("a", pair=pair)]) for pair in (None, "b"))
    assert [found.pair for found in pairs.read(str(two))] == ["b"]
    assert [found.pair for found in singles.read(str(two))] == [None], "a column that training had not is not read"
    for labelled in (True, False):
        with pytest.raises(DataError, match=r"alone\.tsv, line 2: there is no second text, and"):
            list(pairs.read(str(alone), labelled=labelled))
    named = Classify.of({"columns": {"text": "text", "pair": "pair", "label": "label"}}).changed(pairs=False)
    for path in (alone, two):
        assert [found.pair for found in named.read(str(path))] == [None], "the first texts alone"


def test_lists_of_classes_are_as_clean_as_those_with_bars(tmp_path):
    rows = [{"text": "a", "labels": ["a", "b "]}, {"text": "b", "labels": ["b", ""]}, {"text": "c", "labels": []}]
    task = Classify.of({"multilabel": True})
    assert task.find_labels(task.read(str(write_json_lines(tmp_path / "a.jsonl", rows)))) == ("a", "b")


@pytest.mark.parametrize("several", [False, True])
def test_classes_without_names_are_given_by_their_numbers(tmp_path, several):
    """As of a model that `transformers` has trained without `id2label`."""
    task = Classify.of({"multilabel": several}, ["LABEL_0", "LABEL_1"])
    path = write_table(tmp_path / "a.tsv", ("text", "label"), [("a", "1"), ("b", "LABEL_0"), ("c", "0")])
    examples = list(task.read(str(path)))
    targets = [task.target(each).tolist() for each in examples]
    assert targets == ([[[0, 1]], [[1, 0]], [[1, 0]]] if several else [[1], [0], [0]])
    said = [{"label": f"LABEL_{number}", "labels": [f"LABEL_{number}"]} for number in (1, 0, 1)]
    assert task.score(examples, said)["accuracy"] == pytest.approx(2 / 3)
    other = write_table(tmp_path / "b.tsv", ("text", "label"), [("a", "2")])
    with pytest.raises(DataError, match=r"b\.tsv, line 2: the label '2' is not one that training knows"):
        task.target(next(iter(task.read(str(other)))))


@pytest.mark.parametrize("changes", [{"columns": "{text: x}"}, {"columns": {"text": "x"}}, {"columns.text": "x"}])
def test_columns_can_be_set_as_any_option_and_are_added(changes):
    task = Classify.of({"columns": {"label": 2}}).changed(**changes)
    assert task.options.columns == {"label": 2, "text": "x"}
    assert Classify.of({}).changed(columns={"text": "#1 String"}).options.columns == {"text": "#1 String"}


def test_columns_that_are_none_are_refused():
    with pytest.raises(ConfigError, match=r"^columns: "):
        Classify.of({}).changed(columns="body")


def test_a_class_of_the_first_line_alone_may_be_a_header(tmp_path):
    rows = ["review\tsentiment", "good\tpos", "bad\tneg", "fine\tpos", "poor\tneg"]
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{row}\n" for row in rows))
    task = Classify.of({"columns": {"text": 1, "label": 2}})
    examples = list(task.read(str(path)))
    said = f"{path}, line 1: no other line has the class 'sentiment'; if that is a header, remove it"
    assert task.with_labels(task.find_labels(examples)).remarks(examples) == [said]
    assert task.with_labels(task.find_labels(examples[1:])).remarks(examples[1:]) == []
    several = [*examples, *examples[:1]]
    assert task.with_labels(task.find_labels(several)).remarks(several) == []


def test_a_model_of_pairs_is_asked_about_pairs():
    assert Classify.of({"pairs": True}).example("a", "b").pair == "b"
    assert Classify.of({}).example("a").pair is None
    with pytest.raises(InputError, match="there is no second text, and the model is for pairs"):
        Classify.of({"pairs": True}).example("a")
    with pytest.raises(InputError, match="there is no second text, and the model is for pairs"):
        Classify.of({"both_orders": True}).example("a")
    with pytest.raises(ConfigError, match="both_orders: is for pairs, and pairs is false"):
        Classify.of({"both_orders": True, "pairs": False})
    with pytest.raises(InputError, match="there is a second text, and the model is for single texts"):
        Classify.of({"pairs": False}).example("a", "b")


@pytest.mark.parametrize("labelled", [True, False])
def test_a_header_is_no_text_of_numbered_columns(tmp_path, labelled):
    """Or there would be a prediction more than rows, and each stand beside another text."""
    path = write_lines(tmp_path / "a.csv", ["text,kind", "a,x"])
    task = Classify.of({"columns": {"text": 1, "label": 2}})
    with pytest.raises(DataError, match=r"a\.csv, line 1: column 1 holds 'text': this line is a header; name columns"):
        list(task.read(str(path), labelled=labelled))


def test_several_classes_may_stand_as_a_list_in_text():
    """As `DataFrame.to_csv` writes them."""
    examples = [example("a", label) for label in ("['x']", '["y", "z"]', "[]", "x|y", "[x] y")]
    task = Classify.of({"multilabel": True})
    task = task.with_labels(task.find_labels(examples))
    assert task.labels == ("[x] y", "x", "y", "z")
    assert [task.target(each)[0].tolist() for each in examples[:4]] == [
        [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0],
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"line 1: the label \"\['x' 'y'\]\" is no list that JSON or Python writes"):
        task.find_labels([example("a", "['x' 'y']")])  # as numpy writes one
    with pytest.raises(DataError, match="line 1: the class '1' stands there twice; write the names of its classes"):
        task.find_labels([example("a", [1, 0, 1])])  # of each class whether it is there
    assert Classify.of({}).find_labels(examples[:1]) == ("['x']",)


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        (["x, y", "z"], {"multilabel": True}, ["'x, y' is one class; if it is several: --set 'task.separator=…'"]),
        ([["x, y"], ["z"]], {"multilabel": True}, []),
        (["['x, y']", "['z']"], {"multilabel": True}, []),
        (["x, y", "z"], {}, []),
        ([1, 1.0, 0], {}, ["classes '1' and '1.0' are one number; write it in one way"]),
        (["pos", "NaN"], {}, ["a class is called 'NaN'; is that a label?"]),
    ],
)
def test_classes_that_were_hardly_meant_are_remarked_on(labels, options, said):
    examples = [example("a", label) for label in labels]
    task = Classify.of(options)
    assert task.with_labels(task.find_labels(examples)).remarks(examples) == said


def test_empty_texts_are_remarked_on():
    examples = [example(text, number) for number, text in enumerate(("a", "", " "))]
    assert Regress.of({}).remarks(examples) == ["2 of 3 texts are empty"]
    assert Regress.of({}).remarks(examples[:1]) == []


def test_another_way_with_long_text_does_not_ask_about_the_length_of_a_head():
    task = Classify.of({"max_length": 64, "long": {"mode": "head+tail", "head": 8}})
    assert task.changed(**{"long.mode": "tail"}).options.long.head is None
    assert task.changed(**{"long.mode": "head+tail"}).options.long.head == 8
    with pytest.raises(ConfigError, match=r"long\.head: is for --long head\+tail"):
        task.changed(**{"long.mode": "tail", "long.head": 8})


def test_other_tables_than_ours_are_told_what_to_do(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text;label\ngood;pos\n")
    with pytest.raises(DataError, match=r"which column is the text\? There are text;label; put tabs for the semicol"):
        list(Classify.of({}).read(str(path)))
    path.write_text("text;label\ngood, fine;pos\n")
    with pytest.raises(DataError, match=r"line 2: 2 columns, not 1 as in the first line; put tabs for the semicol"):
        list(Classify.of({}).read(str(path)))
    path.write_text("text,label,,\ngood,pos,,\n")  # as a spreadsheet leaves it
    assert [(found.text, found.label) for found in Classify.of({}).read(str(path))] == [("good", "pos")]
    path = tmp_path / "a.jsonl"
    path.write_text('[\n  {"text": "good", "label": "pos"}\n]\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: is not JSON .*; a whole object goes on one line"):
        list(Classify.of({}).read(str(path)))
