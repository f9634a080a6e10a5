"""`bertsmith shards`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_line, print_note, progress_bar
from bertsmith.data.building import Built, ShardOptions
from bertsmith.text.corpus import CorpusOptions

__all__ = ["shards"]


def shards(
    corpus: Annotated[list[str], Parameter(allow_leading_hyphen=True)],  # - is standard input
    /,
    *,
    tokenizer: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    reading: Annotated[CorpusOptions | None, Parameter(name="*")] = None,
    options: Annotated[ShardOptions | None, Parameter(name="*")] = None,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Turn raw text into token shards, ready for pre-training.

    Parameters
    ----------
    corpus
        Files, folders or globs (.txt, .jsonl, .parquet, .md, each also .gz or .zst), - for standard input, or
        builtin:python-docs.
    tokenizer
        A folder with a tokenizer (as `bertsmith vocab` writes it), or a model's name.
    output
        The folder of the data set. If it holds an interrupted build of the same, that build goes on.
    workers
        Processes (default: one a core). The result does not depend on it.
    engine
        Where the work is done: on this machine, or on a Ray cluster that shares the output folder.
    ray_address
        The cluster's address (default: a Ray of one's own on this machine).
    as_json
        Print the counts as JSON.
    """
    from bertsmith.jobs.shards import shards as job

    with progress_bar("reading", in_bytes=True) as progress:
        built = job(
            corpus,
            tokenizer=tokenizer,
            output=output,
            reading=reading,
            options=options,
            workers=workers,
            engine=engine,
            ray_address=ray_address,
            progress=progress,
        )
    for example in built.tally.examples:
        print_note(f"skipped {example}")
    if as_json:
        print_json({"output": str(output), **_facts(built)})
        return
    for line in built.tally.describe():
        print_line(line)
    for split in ("train", "holdout"):
        facts = _facts(built)[split]
        print_line(
            f"{split}: {facts['documents']:,} documents, {facts['sentences']:,} sentences, "
            f"{facts['tokens']:,} tokens in {facts['shards']} shards, {percent(facts['unknown_share'])} [UNK]"
        )
    if built.num_reused:
        print_line(f"{built.num_reused} of {len(built.index.units)} units were there already")
    print_line(f"{output}: complete")


def _facts(built: Built) -> dict[str, dict[str, float]]:
    index = built.index
    facts: dict[str, dict[str, float]] = {"corpus": index.corpus}
    for split in ("train", "holdout"):
        tokens = index.count(split, "tokens")
        facts[split] = {
            "shards": len(index.shards(split)),
            "documents": index.count(split, "documents"),
            "sentences": index.count(split, "sentences"),
            "tokens": tokens,
            "unknown_share": index.count(split, "unknown") / max(tokens, 1),
        }
    return facts
