"""`bertsmith inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_line, print_table, progress_bar
from bertsmith.errors import InputError

if TYPE_CHECKING:
    from bertsmith.jobs.inspect import Inspection

__all__ = ["inspect"]


def inspect(
    path: str,
    *,
    tensors: Annotated[bool, Parameter(negative="")] = False,
    verify: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show a model (shape, parameters, memory, tokenizer; no weights are loaded) or a data set of token shards.

    Parameters
    ----------
    path
        A model folder, a config.json, a model's name, a size (tiny, mini, small, medium, base, large), or the folder
        of a data set.
    tensors
        List every tensor of the weight files instead; checksums are verified where the format has them.
    verify
        Of a data set: compare every file with its SHA-256.
    as_json
        Print JSON.
    """
    from bertsmith.jobs.inspect_shards import is_data_set

    if is_data_set(Path(path)):
        _inspect_shards(Path(path), verify=verify, as_json=as_json)
        return
    if verify:
        raise InputError(f"{path}: no data set is there to --verify; a model's checksums are in --tensors")
    from bertsmith.jobs import inspect as job

    if tensors:
        listed = job.list_tensors(path)
        if as_json:
            print_json([tensor._asdict() for tensor in listed])
            return
        rows = [(t.name, "×".join(map(str, t.shape)), t.dtype, t.checksum or "") for t in listed]
        print_table(("tensor", "shape", "type", "crc32c"), rows)
        return
    found = job.inspect(path)
    if as_json:
        print_json(found.to_json())
    else:
        print_table((found.name, ""), _rows(found))


def _inspect_shards(folder: Path, *, verify: bool, as_json: bool) -> None:
    from bertsmith.jobs.inspect_shards import inspect_shards

    with progress_bar("verifying", in_bytes=True) as progress:
        found = inspect_shards(folder, verify=verify, progress=progress)
    if as_json:
        print_json(found)
        return
    splits: dict[str, dict[str, Any]] = found["splits"]
    counts = [
        (name, *(f"{facts[name]:,}" for facts in splits.values()))
        for name in ("documents", "sentences", "tokens", "shards")
    ]
    counts.append(("[UNK]", *(percent(facts["unknown_share"]) for facts in splits.values())))
    names = [f"sentences to {end} tokens" for end in found["bar_ends"]] + ["longer sentences"]
    bars = [
        (name, *(_bar(facts["histogram"], number) for facts in splits.values())) for number, name in enumerate(names)
    ]
    print_table((str(folder), *splits), counts + bars)
    for split, facts in splits.items():
        for number, example in enumerate(facts["examples"]):
            print_line(f"{split} document {number}: {example}")
    if verify:
        print_line("every file is as it was built")


def _bar(histogram: list[int], number: int) -> str:
    share = histogram[number] / max(sum(histogram), 1)
    return f"{percent(share):>6} " + "█" * round(30 * share)


def _rows(found: Inspection) -> list[tuple[str, str]]:
    config = found.config
    rows = [("kind", found.kind)] if found.kind else []
    rows += [
        ("layers", str(config.num_hidden_layers)),
        ("width (heads)", f"{config.hidden_size} ({config.num_attention_heads} of {config.head_size})"),
        ("feed-forward", f"{config.intermediate_size}, {config.hidden_act}"),
        ("vocabulary", f"{config.vocab_size:,}"),
        ("positions", str(config.max_position_embeddings)),
        ("parameters, encoder with pooler", f"{found.parameters:,}"),
        *((f"  {part}", f"{count:,}") for part, count in found.parts.items()),
        *((f"head {part}", f"{count:,}") for part, count in found.heads.items()),
        ("parameters in all", f"{found.total_parameters:,}" + ("" if found.has_pooler else " (no pooler)")),
        ("memory, weights", f"{found.memory['weights'] / 2**20:,.0f} MiB"),
        ("memory, training with Adam", f"{found.memory['training_with_adam'] / 2**20:,.0f} MiB and activations"),
    ]
    if found.max_length:
        rows.append(("longest input", f"{found.max_length} tokens"))
    if found.tokenizer:
        case = "uncased" if found.tokenizer["lowercase"] else "cased"
        rows.append(("tokenizer", f"{found.tokenizer['pieces']:,} pieces, {case}"))
    return rows
