"""`bertsmith inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertsmith.cli.output import print_json, print_table

if TYPE_CHECKING:
    from bertsmith.jobs.inspect import Inspection

__all__ = ["inspect"]


def inspect(
    path: str,
    *,
    tensors: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show a model's configuration, parameters per part, memory and tokenizer; no weights are loaded.

    Parameters
    ----------
    path
        A model folder, a config.json, a model's name, or a size: tiny, mini, small, medium, base, large.
    tensors
        List every tensor of the weight files instead; checksums are verified where the format has them.
    as_json
        Print JSON.
    """
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
