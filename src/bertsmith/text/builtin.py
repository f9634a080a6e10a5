"""A corpus that needs no download: the prose in the documentation strings of Python and of what Bertsmith stands on.

Sources are parsed, never imported. One module is a document, one paragraph a line. What is not prose goes: doctests
and other indented code, signatures, tables, lists of fields, markup.
"""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
import warnings
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clean_docstring", "python_docs"]

_PACKAGE = "bertsmith"
_NOT_DOCUMENTATION = {"test", "tests", "testing", "idle_test", "site-packages", "__pycache__", "lib2to3", "_vendor"}
_ROLE = re.compile(r":[a-zA-Z:]+:`~?([^`<]*?)(?:\s*<[^>]*>)?`")
_LITERAL = re.compile(r"``?([^`]+)``?_{0,2}")
_UNDERLINE = re.compile(r"^\s*([=\-~^\"'#*+.`_])\1{2,}\s*$")
_SIGNATURE = re.compile(r"^\s*[\w.]+\(.*\)(\s*->.*)?:?\s*$")
_FIELD = re.compile(r"^\s*(:\w+[^:]*:|@\w+|[\w*, ]+\s:\s|\.\. )")
_TABLE = re.compile(r"^\s*[|+].*[|+]\s*$|\S(\s{3,}\S.*){2,}|[=-]{3,} +[=-]{3,}")
_SECTION = re.compile(
    r"^\s*(args|arguments|attributes|examples?|keyword args|parameters|raises|references|returns?|see also|usage|"
    r"yields)\s*:{0,2}\s*$",
    re.IGNORECASE,
)
_MIN_WORDS = 4


def python_docs() -> Iterator[tuple[str, str]]:
    """(module, prose) in a stable order: the standard library, its topics, then packages by name."""
    for name, path in _modules():
        prose = _prose_of_module(path)
        if prose:
            yield name, prose


def clean_docstring(text: str) -> str:
    r"""The prose of one documentation string, one paragraph a line.

    >>> clean_docstring("Say ``hello`` to\n    all of them.\n\n    >>> hello(1)\n    2\n")
    'Say hello to all of them.'
    """
    paragraphs = []
    next_is_code = False
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        is_code, next_is_code = next_is_code, block.endswith("::")  # the sign for code, which may have lost its indent
        if is_code:
            continue
        lines = block.split("\n")
        if any(line.lstrip(" #").startswith((">>>", "...")) for line in lines) or any(map(_TABLE.search, lines)):
            continue
        underlined = len(lines) > 1 and _UNDERLINE.match(lines[1])
        if _SECTION.match(lines[0]) and not underlined:  # what follows is a list of names
            continue
        if underlined:
            lines = lines[2:]
        kept = [line for line in lines if not (_UNDERLINE.match(line) or _SIGNATURE.match(line) or _FIELD.match(line))]
        if not kept or kept[0].startswith("    "):  # an indented block is code, or belongs to a field
            continue
        prose = " ".join(" ".join(kept).split())
        prose = _LITERAL.sub(r"\1", _ROLE.sub(r"\1", prose)).rstrip(":")
        if len(prose.split()) >= _MIN_WORDS and not _SIGNATURE.match(prose):
            paragraphs.append(prose)
    return "\n".join(paragraphs)


def _modules() -> Iterator[tuple[str, Path]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    yield from _under(library, library)
    for package in sorted(_packages()):
        files = metadata.files(package) or []
        paths = sorted({file for file in files if file.suffix == ".py"}, key=str)
        for file in paths:
            private = any(part.startswith("_") and part != "__init__.py" for part in file.parts)
            if not private and not _NOT_DOCUMENTATION & set(file.parts) and ".." not in file.parts:
                yield _name(Path(file)), Path(str(file.locate()))


def _under(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in _NOT_DOCUMENTATION or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from _under(entry, root)
        elif entry.suffix == ".py":
            yield _name(entry.relative_to(root)), entry


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _packages() -> set[str]:
    """What Bertsmith requires, and what that requires, as far as it is installed; extras are left out."""
    found: set[str] = set()
    waiting = [_PACKAGE]
    while waiting:
        for requirement in metadata.requires(waiting.pop()) or []:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match is None or "extra ==" in requirement:
                continue
            name = re.sub(r"[-_.]+", "-", match[0]).lower()
            if name not in found and _installed(name):
                found.add(name)
                waiting.append(name)
    return found


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _prose_of_module(path: Path) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):  # a module for another version of Python
        return ""
    parts = [clean_docstring(text) for text in _docstrings(tree)]
    return "\n".join(dict.fromkeys(part for part in parts if part))


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """In the order of the file; of a module that holds texts (as `pydoc_data.topics`), those."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node, clean=False):
                yield text
            waiting += reversed(node.body)
        elif isinstance(node, ast.If | ast.Try):
            waiting += reversed(node.body)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            values = [value.value for value in node.value.values if isinstance(value, ast.Constant)]
            yield from (value for value in values if isinstance(value, str) and value.count("\n") > 5)
