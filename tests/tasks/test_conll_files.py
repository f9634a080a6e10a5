"""CoNLL columns: sentences, documents, columns from either end; and what is refused."""

from __future__ import annotations

import pytest

from bertsmith.errors import ConfigError, DataError
from bertsmith.tasks.conll import read_conll

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
1996-08-22 CD I-NP O
"""


def read(tmp_path, text, *given, name="a.txt", **more):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_conll(str(path), *given, **more))


def test_conll_2003_with_its_documents(tmp_path):
    found = read(tmp_path, CONLL_2003)
    assert [(s.place.line, s.document, s.words, s.tags) for s in found] == [
        (3, 1, ("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC")),
        (7, 1, ("Peter", "Blackburn"), ("B-PER", "I-PER")),
        (12, 2, ("BRUSSELS", "1996-08-22"), ("B-LOC", "O")),
    ]


def test_columns_count_from_either_end_and_tags_may_be_left_out(tmp_path):
    assert read(tmp_path, CONLL_2003, 1, 3)[0].tags == ("B-NP", "B-VP", "B-NP")
    assert read(tmp_path, CONLL_2003, 1, -2)[0].tags == ("B-NP", "B-VP", "B-NP")
    words = read(tmp_path, CONLL_2003, -4, labelled=False)[1]
    assert (words.words, words.tags) == (("Peter", "Blackburn"), None)


def test_tabs_divide_columns_where_there_are_any(tmp_path):
    """So a word may have a space in it, or be one; Windows' line ends are no part of a tag."""
    found = read(tmp_path, "New York\tB-LOC\r\n\u3000\tO\r\n\r\nin\tO\r\n")
    assert [(s.words, s.tags) for s in found] == [(("New York", "\u3000"), ("B-LOC", "O")), (("in",), ("O",))]


def test_a_cell_may_be_empty_where_columns_have_names(tmp_path):
    """Or the columns behind it would be taken for those before."""
    text = "id\tword\tpos\ttag\n\tanna\tNN\tB-PER\n2\tlives\t\tO\n\n"
    (found,) = read(tmp_path, text, "word", "tag")
    assert (found.words, found.tags) == (("anna", "lives"), ("B-PER", "O"))
    assert read(tmp_path, text, "word", labelled=False)[0].words == ("anna", "lives")
    with pytest.raises(DataError, match=r"a\.txt, line 3: column 3 is empty; write a word and its tag, or remove"):
        read(tmp_path, text, "pos", "tag")
    for text in ("word\ttag\nanna\t\nlives\t\n", "word\ttag\nanna\nlives\t\n"):
        assert read(tmp_path, text, "word", "tag", labelled=False)[0].words == ("anna", "lives")
    text = "\tword\ttag \n0\tanna\tNN \n1\tlives\tNN\t\n"  # a column without a name, and stray white space
    (found,) = read(tmp_path, text, "word", "tag", plain=True)
    assert (found.words, found.tags) == (("anna", "lives"), ("NN", "NN"))
    assert read(tmp_path, "anna B-PER\t\nlives O\n")[0].tags == ("B-PER", "O")
    (found,) = read(tmp_path, "anna\t\tB-PER\nlives\tO\n")  # tabs that put columns below each other
    assert (found.words, found.tags) == (("anna", "lives"), ("B-PER", "O"))


def test_chinese_with_one_space(tmp_path):
    found = read(tmp_path, "彭 B-name\n小 I-name\n\n\n认 O")
    assert [(s.words, s.place.line) for s in found] == [(("彭", "小"), 1), (("认",), 5)]


def test_a_document_ends_a_sentence_even_without_a_blank_line(tmp_path):
    found = read(tmp_path, "-DOCSTART- O\na O\n-DOCSTART- O\nb O\n")
    assert [(s.words, s.document) for s in found] == [(("a",), 1), (("b",), 2)]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a O\nb\n", 2, "1 columns, not 2 as in the first line; correct or remove it"),
        ("a O\n\nb x O\n", 3, "3 columns, not 2"),
        ("a O\nb NN\n", 2, "'NN' is not a tag (O, B-NAME, I-NAME and the like); is it the tag column?"),
        ("a O\nb B-\n", 2, "'B-' is not a tag"),
        ("a\nb\n", 1, "1 columns, so there is no column -1"),
        (b"a O\n\xe9 O\n", 2, "is not UTF-8 (byte 0 of the line)"),
        ("\n-DOCSTART- O\n\n", 1, "is empty"),
        ("", 1, "is empty"),
    ],
)
def test_a_broken_file_is_refused_with_file_and_line(tmp_path, text, line, what):
    with pytest.raises(DataError) as refusal:
        read(tmp_path, text)
    assert str(refusal.value).startswith(f"{tmp_path / 'a.txt'}, line {line}: {what}")


@pytest.mark.parametrize(("word", "tag"), [("token", "ner"), ("token", 3), (2, "ner"), ("token", -1)])
def test_columns_go_by_the_names_of_a_header(tmp_path, word, tag):
    (found,) = read(tmp_path, "id\ttoken\tner\n1\tanna\tB-PER\n2\truns\tO\n", word, tag)
    assert (found.words, found.tags, found.place.line) == (("anna", "runs"), ("B-PER", "O"), 2)


@pytest.mark.parametrize(("word", "tag"), [("token", -1), (1, "token")])
def test_a_name_that_no_header_has(tmp_path, word, tag):
    with pytest.raises(DataError, match=r"line 1: no column 'token'; there are a, O: name one with --column"):
        read(tmp_path, "a O\n", word, tag)


def test_columns_count_from_1(tmp_path):
    with pytest.raises(ConfigError, match="columns: those of CoNLL have names, or numbers from 1"):
        read(tmp_path, "a O\n", 0, -1)


def test_lines_of_chinese_are_no_words_where_each_character_is_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("我住在北京。\n")
    with pytest.raises(DataError, match=r"line 1: '我住在北京。' is more than a word and its tag; running text"):
        list(read_conll(str(path), labelled=False, characters=True))
    (found,) = read_conll(str(path), labelled=False)
    assert found.words == ("我住在北京。",)
    path.write_text("我\n2026\n年\n")
    (found,) = read_conll(str(path), labelled=False, characters=True)
    assert found.words == ("我", "2026", "年")
    path.write_text("第一\t我\n第一\t住\n")
    (found,) = read_conll(str(path), 2, labelled=False, characters=True)
    assert found.words == ("我", "住")


def test_a_column_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="line 1: 2 columns, so there is no column 3"):
        read(tmp_path, "a O\n", 3, -1)


@pytest.mark.parametrize(("header", "plain"), [("word tag", True), ("TOKEN LEMMA POS", True), ("Form NER", False)])
def test_a_header_is_no_word_where_columns_go_by_number(tmp_path, header, plain):
    first, *between, last = header.split()
    path = tmp_path / "a.txt"
    path.write_text(f"{header}\n{' '.join(['Anna', *between, 'O'])}\n")
    with pytest.raises(DataError, match=r"a\.txt, line 1: .* this line is a header; name columns by name"):
        list(read_conll(str(path), plain=plain))
    (sentence,) = read_conll(str(path), first, last, plain=plain)
    assert (sentence.words, sentence.tags) == (("Anna",), ("O",))


def test_words_that_headers_have_are_words_too(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Text NN\nword NN\n's POS\n")
    (sentence,) = read_conll(str(path), plain=True)
    assert sentence.words == ("Text", "word", "'s")


@pytest.mark.parametrize("tag", ["NER", "ner"])
def test_a_header_is_no_word_where_nobody_looks_at_tags(tmp_path, tag):
    text = f"word\t{tag}\nEU\tB-ORG\n"
    for columns in ((1, tag), ("word", tag), ("word", -1)):
        (found,) = read(tmp_path, text, *columns, labelled=False)
        assert (found.words, found.tags) == (("EU",), None)
    (found,) = read(tmp_path, "EU\nrejects\n", 1, tag, labelled=False)
    assert found.words == ("EU", "rejects"), "words alone need no header"
    with pytest.raises(DataError, match="line 1: no column 'word'; there are EU"):
        read(tmp_path, "EU\nrejects\n", "word", tag, labelled=False)
