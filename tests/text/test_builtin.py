"""The built-in corpus: prose alone, in a stable order, and as large as is said of it."""

from __future__ import annotations

import re

import pytest

from bertsmith.text import builtin
from bertsmith.text.builtin import clean_docstring, python_docs


@pytest.fixture(scope="module")
def documents():
    return list(python_docs())


def test_it_holds_millions_of_characters_of_prose(documents):
    assert sum(len(text) for _, text in documents) > 3_000_000
    assert len(documents) > 1000


def test_modules_come_in_one_order_and_none_twice(documents):
    modules = list(builtin._modules())
    assert list(builtin._modules()) == modules
    places = {name: number for number, (name, _) in enumerate(modules)}
    numbers = [places[name] for name, _ in documents]
    assert numbers == sorted(set(numbers))


def test_a_module_gives_the_same_text_every_time(documents):
    paths = dict(builtin._modules())
    for name, text in documents[::200]:
        assert builtin._prose_of_module(paths[name]) == text


def test_the_standard_library_and_what_is_required_are_there_and_tests_are_not(documents):
    names = {name for name, _ in documents}
    assert {"argparse", "json", "pydoc_data.topics", "numpy", "torch"} <= names
    assert not any({"test", "tests", "idle_test"} & set(name.split(".")[:-1]) for name in names)


def test_nothing_but_prose_is_in_it(documents):  # but for a handful among tens of thousands of paragraphs
    forbidden = {
        "doctest": r"^\W*>>>",
        "rule or table": r"[=-]{3,} +[=-]{3,}|^[|+].*[|+]$|([=\-~])\1{9}",
        "signature": r"^[\w.]+\([^()]*\)( -> .*)?$",
        "field": r"^:\w+|^\.\. \w+::",
        "layout": r"\t|\n\s*\n",
    }
    for what, pattern in forbidden.items():
        found = [(name, line) for name, text in documents for line in text.split("\n") if re.search(pattern, line)]
        assert len(found) <= 20, (what, len(found), found[:5])


CASES = {
    "doctest": (">>> add(1, 2)\n3\n\nIt is quick and safe.", "It is quick and safe."),
    "commented doctest": ("# >>> add(1, 2) is like this\n# 3", ""),
    "wrapped": ("A text of\n    two lines only.", "A text of two lines only."),
    "code": ("See what it does here::\n\n    x = some code that is long\n", "See what it does here"),
    "signature": ("add(a, b, c, d) -> int\n\nThe sum of all four.", "The sum of all four."),
    "signature in markup": ("``add(a, b, c, d)``\n\nThe sum of all four.", "The sum of all four."),
    "fields": ("The sum of both numbers.\n\n:param a: one of them, a number\n:returns: the sum of them", None),
    "numpy fields": ("The sum of both numbers.\n\nParameters\n----------\na : int\n    One of the two numbers.", None),
    "grid table": ("The sum of both numbers.\n\n+---+---+\n| a | b |\n+---+---+", None),
    "simple table": ("The sum of both numbers.\n\n=== ===\none two of them\n=== ===", None),
    "dashed table": ("The sum of both numbers.\n\nName     Class\n----     -----\none two of them", None),
    "columns": ("The sum of both numbers.\n\none    two    three words more", None),
    "roles": ("See :class:`~a.b.C` and :func:`the f <x.f>` and `this`_ too.", "See a.b.C and the f and this too."),
    "heading": ("The sum of both numbers.\n\nNotes\n-----\nIt may well overflow.", None),
    "too short": ("Do it now.", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_a_docstring_is_cleaned_to_its_prose(case):
    text, expected = CASES[case]
    cleaned = clean_docstring(text)
    if expected is None:
        expected = "The sum of both numbers." + ("\nIt may well overflow." if case == "heading" else "")
    assert cleaned == expected


def test_a_module_that_cannot_be_parsed_is_left_out(tmp_path):
    path = tmp_path / "old.py"
    for data in (b"print 'old'", b"x = '\xff'", b"\0"):
        path.write_bytes(data)
        assert builtin._prose_of_module(path) == ""
    assert builtin._prose_of_module(tmp_path / "missing.py") == ""


def test_docstrings_come_in_the_order_of_the_file_and_once(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""The first of these texts."""\n'
        'class A:\n    """The second of these texts."""\n    def f(self):\n        """The third of these texts."""\n'
        'if True:\n    def g():\n        """The fourth of these texts."""\n'
        'async def h():\n    """The second of these texts."""\n'
    )
    assert builtin._prose_of_module(path).split("\n") == [
        f"The {number} of these texts." for number in ("first", "second", "third", "fourth")
    ]
