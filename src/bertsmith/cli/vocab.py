"""`bertsmith vocab`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_line, print_note, print_table, progress_bar
from bertsmith.jobs.vocab import VocabOptions
from bertsmith.text.corpus import CorpusOptions

if TYPE_CHECKING:
    from bertsmith.jobs.vocab import VocabResult

__all__ = ["vocab"]


def vocab(
    corpus: Annotated[list[str], Parameter(allow_leading_hyphen=True)],  # - is standard input
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    options: Annotated[VocabOptions | None, Parameter(name="*")] = None,
    reading: Annotated[CorpusOptions | None, Parameter(name="*")] = None,
    compare: str | None = None,
    workers: int | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Learn a WordPiece vocabulary from raw text. The same text gives the same bytes.

    Parameters
    ----------
    corpus
        Files, folders or globs (.txt, .jsonl, .parquet, .md, each also .gz or .zst), - for standard input, or
        builtin:python-docs.
    output
        The folder to write vocab.txt, tokenizer.json and tokenizer_config.json into.
    compare
        A folder or model whose vocabulary is measured beside the new one.
    workers
        Processes that count words (default: one a core). The result does not depend on it.
    as_json
        Print what was measured as JSON.
    """
    from bertsmith.jobs.vocab import vocab as job

    with progress_bar("counting words", in_bytes=True) as progress:
        result = job(
            corpus,
            output=output,
            options=options,
            reading=reading,
            compare=compare,
            workers=workers,
            progress=progress,
        )
    for example in result.tally.examples:
        print_note(f"skipped {example}")
    if as_json:
        print_json({"output": str(output), **result.to_json()})
    else:
        _show(result, output, compare)


def _show(result: VocabResult, output: Path, compare: str | None) -> None:
    for line in result.tally.describe():
        print_line(line)
    print_line(f"{result.num_words:,} distinct words; measured on {result.to_json()['measured_on']}")
    sides = [result.quality, *([result.compared] if result.compared else [])]
    print_table(
        ("", "new", *([compare] if compare else [])),
        [
            ("pieces", *(f"{side.size:,}" for side in sides)),
            ("pieces per word", *(f"{side.pieces_per_word:.3f}" for side in sides)),
            ("[UNK]", *(f"{100 * side.unknown_share:.3f}%" for side in sides)),
            ("words that are one piece", *(percent(side.whole_word_share) for side in sides)),
            ("longest", *(" ".join(side.longest) for side in sides)),
            ("rarest", *(" ".join(side.rarest) for side in sides)),
        ],
    )
    rows = zip(*(side.examples for side in sides), strict=True)
    print_table(
        ("word", "new", *([compare] if compare else [])),
        [(row[0][0], *(" ".join(pieces) for _, pieces in row)) for row in rows],
    )
    print_line(f"{output}: {result.quality.size:,} pieces")
