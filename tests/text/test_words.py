"""Chinese words, a dictionary of one's own, and lists of terms from files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import CorpusError
from bertsmith.text.words import ChineseWords, has_han, read_terms


def test_words_are_those_of_the_segmenter():
    assert ChineseWords().cut("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]


def test_a_term_of_the_dictionary_stays_whole():
    text = "石墨烯量子点很好"
    assert "石墨烯量子点" not in ChineseWords().cut(text)
    assert "石墨烯量子点" in ChineseWords(["石墨烯量子点"]).cut(text)


def test_one_dictionary_does_not_reach_another_segmenter():
    ChineseWords(["石墨烯量子点"])
    assert "石墨烯量子点" not in ChineseWords().cut("石墨烯量子点很好")


@settings(deadline=None)
@given(st.text(st.sampled_from("我来到北京abc 12.，。\n😀é\u0301㐀𠀀")))
def test_words_put_together_are_the_text(text):
    assert "".join(_SEGMENTER.cut(text)) == text


_SEGMENTER = ChineseWords()


@pytest.mark.parametrize(
    ("text", "expected"), [("", False), ("abc", False), ("é", False), ("かな", False), ("a中", True)]
)
def test_only_han_is_segmented(text, expected):
    assert has_han(text) is expected


def test_terms_are_one_a_line_without_blanks_and_repetitions(tmp_path):
    path = tmp_path / "terms.txt"
    path.write_bytes("\ufeffone\r\n\n two words \n北京\none\n".encode())
    assert read_terms(path) == ["one", "two words", "北京"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"one\n\ncaf\xe9\n", r"terms\.txt, line 3: is not UTF-8"),
        (b"one\ntwo\0\n", r"terms\.txt, line 2: has a NUL byte"),
        (b"\n \n", r"terms\.txt: is empty"),
        (None, r"terms\.txt: cannot be read \(No such file"),
    ],
)
def test_a_bad_list_is_an_error_with_file_and_line(data, message, tmp_path):
    path = tmp_path / "terms.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        read_terms(path)
