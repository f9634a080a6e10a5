"""The prose of Markdown, and nothing else of it."""

from __future__ import annotations

import time

import pytest

from bertsmith.text.markdown import prose_of_markdown

CASES = {
    "headings": ("# One\n\nTwo\n===\n\n### Three ###\n", "One\nTwo\nThree"),
    "wrapped paragraph": ("one\ntwo  \nthree\\\nfour\n", "one two three four"),
    "emphasis": ("*a* **b** __c__ ***d***", "a b c d"),
    "inline code": ("call `f(x)` now", "call f(x) now"),
    "fenced code": ("before\n\n```python\nx = 1\n```\n\nafter\n\n~~~\ny\n~~~\n", "before\nafter"),
    "indented code": ("before\n\n    x = 1\n\nafter", "before\nafter"),
    "unclosed fence": ("before\n\n```\nx = 1\n", "before"),
    "link": ("see [the page](http://x.org 'title') and <http://y.org>", "see the page and http://y.org"),
    "reference": ("see [the page][1]\n\n[1]: http://x.org\n", "see the page"),
    "image": ("![a *red* house](house.png) stands", "a red house stands"),
    "lists": ("- one\n- two\n  - three\n\n1. four\n", "one\ntwo\nthree\nfour"),
    "quote": ("> said\n> so\n", "said so"),
    "table": ("before\n\n| a | b |\n|---|---|\n| c | d |\n\nafter", "before\nafter"),
    "html": ("before\n\n<div class='x'>\nno\n</div>\n\nan <b>inner</b> tag", "before\nan inner tag"),
    "rule": ("a\n\n---\n\nb\n\n***\n", "a\nb"),
    "front matter": ("---\ntitle: x\ntags: [a]\n---\n\nText", "Text"),
    "no front matter": ("Text\n\n---\n\ntitle: x\n\n---\n", "Text\ntitle: x"),
    "entities and escapes": ("a &amp; b \\* c", "a & b * c"),
    "nothing": ("", ""),
    "code alone": ("```\nx\n```\n", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_prose_stays_and_markup_goes(case):
    given, expected = CASES[case]
    assert prose_of_markdown(given) == expected


@pytest.mark.parametrize("text", ["> " * 2000, "[" * 20_000, "![" * 5000, "*a " * 5000, "`" * 20_000, "- " * 2000])
def test_deep_nesting_ends_soon_and_does_not_crash(text):
    begun = time.perf_counter()
    prose_of_markdown(text + "x")
    assert time.perf_counter() - begun < 10
