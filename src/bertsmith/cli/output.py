"""How verbs print: JSON for machines, tables for people, progress on stderr."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "columns_of",
    "given_once",
    "layers_of",
    "note_on_int8",
    "pairs_of",
    "percent",
    "print_json",
    "print_line",
    "print_note",
    "print_table",
    "progress_bar",
    "read_text",
    "task_options",
]


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_line(text: str = "") -> None:
    """One line on stdout."""
    sys.stdout.write(text + "\n")


def print_note(text: str) -> None:
    """One line on stderr, for what is not a result."""
    sys.stderr.write(f"bertsmith: {text}\n")


def note_on_int8() -> None:
    """Tell where eight bits are no faster."""
    from bertsmith.model.eight_bit import has_fast_products

    if not has_fast_products():
        print_note("this processor has no fast products in eight bits: --int8 will not be faster here")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: drawn on a terminal, tab-separated into a pipe."""
    if not sys.stdout.isatty():
        for row in (header, *rows):
            print_line("\t".join(row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def percent(share: float) -> str:
    """0 to 1 as people read it."""
    return f"{100 * share:.1f}%"


def read_text(argument: str) -> str:
    """A text given on the command line, or all of standard input for `-`."""
    if argument != "-":
        return argument
    from bertsmith.tasks.tables import standard_input

    try:
        return standard_input().read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: not UTF-8 (byte {error.start})") from error


def pairs_of(given: Sequence[str], flag: str = "--set", example: str = "optimizer.rate=1e-3") -> dict[str, str]:
    """NAME=VALUE, several, as --set and --column have them."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} {pair}: expected NAME=VALUE, as in {flag} {example}")
        if name in found:
            raise ConfigError(f"{flag} {name}=…: is given twice, as {found[name]} and as {value}; give it once")
        found[name] = value
    return found


def given_once(own: dict[str, Any], changes: Sequence[str] | None) -> dict[str, Any]:
    """Settings by options of their own and by --set; none by both."""
    named = pairs_of(changes or [])
    for name in own.keys() & named.keys():
        raise ConfigError(f"{name}: is given twice, by --set {name}=… and by its own option; give it once")
    return {**own, **named}


def columns_of(given: Sequence[str] | None) -> dict[str, str | int]:
    """FIELD=COLUMN, several; a whole number counts columns."""
    pairs = pairs_of(given or [], "--column", "text=sentence")
    return {name: int(value) if value.removeprefix("-").isdecimal() else value for name, value in pairs.items()}


def layers_of(given: str | None) -> tuple[int, ...] | None:
    """Numbers of layers, with commas between them."""
    if given is None:
        return None
    try:
        return tuple(int(number) for number in given.split(","))
    except ValueError:
        raise ConfigError(f"--layers {given}: expected whole numbers with commas, as in --layers -2,-1") from None


def task_options(columns: Sequence[str] | None, changes: Sequence[str] | None) -> dict[str, Any]:
    """Options of a model's task from --column and --set; `task.` may stand before a name, as in fine-tuning."""
    named = columns_of(columns)
    pairs = {name.removeprefix("task."): value for name, value in pairs_of(changes or []).items()}
    return ({"columns": named} if named else {}) | pairs


@contextmanager
def progress_bar(what: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr; the function it gives takes how many are newly done, and how many there are."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    count: ProgressColumn = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn(what), BarColumn(), count, TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, advance=done, total=total)
