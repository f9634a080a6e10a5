"""Where sentences end, in English and Chinese; the three modes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import InputError
from bertsmith.text.sentences import SentenceSplitter, language_of

ENGLISH = [
    ["Dr. Smith met Mr. Jones at 3 p.m. on Monday.", "They left."],
    ["The U.S. economy grew by 3.5 percent.", "Nobody knew why."],
    ["Use e.g. a hammer, i.e. a tool.", "Then stop."],
    ['He said, "Go."', "Then he left."],
    ['"Why?" she asked.', "Nobody answered."],
    ["Really?!", "Yes!"],
    ["It cost $4.50 at example.com.", "Cheap."],
    ["He waited... and waited.", "Nothing came."],
]
CHINESE = [
    ["他走了。", "她没有走。"],
    ["他走了……", "真的吗！？", "是的。"],
    ["真的吗？！", "是的！"],
    ["“是的。”", "她说。"],
    ["他说：“你好。”", "然后走了。"],
    ["「好！」", "他叫道。"],
    ["他想……", "“走吧……”", "她说。"],
    ["等等……，我来了。"],
    ["圆周率是3.14。", "对吗？"],
]


@pytest.mark.parametrize("sentences", ENGLISH, ids=lambda case: case[0])
def test_english_sentences_end_where_a_reader_says(sentences):
    assert SentenceSplitter("en").split(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", CHINESE, ids=lambda case: case[0])
def test_chinese_sentences_end_where_a_reader_says(sentences):
    assert SentenceSplitter("zh").split("".join(sentences)) == sentences
    assert SentenceSplitter().split("".join(sentences)) == sentences


def test_a_line_end_always_ends_a_sentence_in_split_mode():
    assert SentenceSplitter().split("A title\nOne. Two.\n\n  three \n") == ["A title", "One.", "Two.", "three"]


def test_lines_mode_takes_lines_as_they_are():
    text = "One. Two.\n\n  Dr. Who? \n\r\n他走了……真的。"
    assert SentenceSplitter(mode="lines").split(text) == ["One. Two.", "Dr. Who?", "他走了……真的。"]


def test_wrapped_mode_joins_the_lines_of_a_paragraph():
    text = "This was broken\n  at a column. And\ngoes on.\n \nA new\nparagraph"
    assert SentenceSplitter(mode="wrapped").split(text) == [
        "This was broken at a column.",
        "And goes on.",
        "A new paragraph",
    ]


def test_wrapped_mode_puts_no_spaces_between_chinese_characters():
    text = "他今天\n走了，\n她没有。真\n的吗？"
    assert SentenceSplitter(mode="wrapped").split(text) == ["他今天走了，她没有。", "真的吗？"]


def test_another_language_of_the_library_is_used():
    assert SentenceSplitter("hi").split("यह एक वाक्य है। यह दूसरा है।") == ["यह एक वाक्य है।", "यह दूसरा है।"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("Hello", "en"),
        ("naïve café", "en"),
        ("我们 like it", "zh"),
        ("これは本", "ja"),
        ("x" * 99 + "中", "en"),
    ],
)
def test_the_language_is_told_by_the_characters(text, language):
    assert language_of(text) == language


@pytest.mark.parametrize("language", ["EN", "english", "", "e", "../x"])
def test_what_is_no_language_code_is_refused(language):
    with pytest.raises(InputError, match=r"--language .*: give a code"):
        SentenceSplitter(language)


@pytest.mark.parametrize("space", [chr(code) for code in range(128, 0x3001) if chr(code).isspace()])
@pytest.mark.parametrize("language", ["en", "zh", "ja", "de"])
def test_white_space_beyond_ascii_does_not_make_the_library_panic(space, language):
    assert SentenceSplitter(language).split(f"D{space}.“") == ["D .“"]


_TEXT = st.text(st.sampled_from("ab .!?\"'()\n\t。！？…“”「」，、：；中国かDr.3\u3000\u200b😀"), max_size=60)


@pytest.mark.parametrize("mode", ["split", "lines", "wrapped"])
@settings(deadline=None)
@given(text=_TEXT)
def test_no_character_is_lost_and_none_is_made_up(mode, text):
    for language in ("auto", "en", "zh", "ja"):
        sentences = SentenceSplitter(language, mode).split(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        assert all(sentence == sentence.strip() and sentence for sentence in sentences)
        if mode != "wrapped":
            assert not any("\n" in sentence for sentence in sentences)
