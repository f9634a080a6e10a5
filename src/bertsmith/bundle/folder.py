"""A model folder in and out.

In: a folder of Hugging Face's layout or of Google's. Out: a `Bundle`, model and tokenizer together; and
back again as a Hugging Face folder that appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from bertsmith.bundle.albert import FoldedAlbert, fold_config, is_albert
from bertsmith.bundle.card import model_card
from bertsmith.bundle.embedding import TASK_FILE, read_pooling, read_whitening, unknown_steps, whitening_tensors
from bertsmith.bundle.fitting import extra_tensors, fit, published_config, tensors_of
from bertsmith.bundle.google import GoogleCheckpoint
from bertsmith.bundle.google_names import GoogleWeights
from bertsmith.bundle.safetensors_file import SafetensorsFile
from bertsmith.bundle.sources import WEIGHT_FILES, open_weights
from bertsmith.config import BertConfig, read_json
from bertsmith.errors import InputError, ModelNotFoundError, TokenizerError
from bertsmith.folders import new_folder
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch

    from bertsmith.bundle.weights import WeightSource
    from bertsmith.model.heads import BertModel
    from bertsmith.model.pooling import Pooling, Whitening

__all__ = [
    "Bundle",
    "digest_of_model",
    "google_checkpoint",
    "is_model_folder",
    "max_length_of",
    "no_model_in",
    "open_model",
    "read_bundle",
    "read_task",
    "tokenizer_of",
    "write_bundle",
]

MAX_SHARD_BYTES = 5 * 10**9
EXTRA_FILE = "bertsmith.safetensors"
_READ = (".safetensors", ".bin", ".json", ".txt")  # and the parts of a TensorFlow checkpoint


@dataclass(frozen=True)
class Bundle:
    """A model, its tokenizer where it has one, and the longest input that it is meant for.

    `task` is what only Bertsmith knows of it (`bertsmith.json`): the kind of task and its options. Weights that others
    have no place for are in `extras` (`bertsmith.safetensors`). `pooling` and `whitening` are how its sentence vectors
    are meant to be made, where it says so; `unknown_steps` says why that cannot be done here.
    """

    model: BertModel
    tokenizer: Tokenizer | None
    max_length: int
    task: dict[str, Any] | None = None
    extras: dict[str, torch.Tensor] = field(default_factory=dict)
    pooling: Pooling | None = None
    whitening: Whitening | None = None
    unknown_steps: str | None = None


def is_model_folder(folder: Path) -> bool:
    """Whether a folder looks like a model of either layout."""
    return _has_weights(folder) or _google_prefix(folder) is not None


def _has_weights(folder: Path) -> bool:
    """Hugging Face's layout; it wins where both are there."""
    return (folder / "config.json").is_file() and any((folder / name).is_file() for name in WEIGHT_FILES)


def open_model(folder: Path) -> tuple[BertConfig, WeightSource]:
    """A folder's configuration and weights, whatever its layout, judged but not yet read."""
    if _has_weights(folder):
        config, source = BertConfig.from_file(folder / "config.json"), open_weights(folder)
        if is_albert(source):
            return fold_config(config), FoldedAlbert(source, config.num_hidden_layers)
        return config, source
    checkpoint = google_checkpoint(folder)
    if checkpoint is not None:
        return BertConfig.from_file(folder / "bert_config.json"), GoogleWeights(checkpoint)
    raise ModelNotFoundError(no_model_in(folder))


def no_model_in(folder: Path) -> str:
    """What to say of a folder that holds no model, or the runs that will make one."""
    if any((folder / name).is_file() for name in ("result.json", "summary.json")):
        return f"{folder}: is at its end, and its model is gone; begin a new run in another folder"
    if any((folder / name).is_file() for name in ("metrics.jsonl", "several.json")):
        return f"{folder}: is not finished, so there is no model yet; go on with --resume"
    expected = f"config.json with {WEIGHT_FILES[0]}, or bert_config.json with bert_model.ckpt.index"
    return f"{folder}: no model here; expected {expected}"


def digest_of_model(folder: Path) -> str:
    """Of all that a model is read from: weights, configuration, tokenizer."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.suffix in _READ or ".ckpt" in path.name):
            with path.open("rb") as file:
                digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def google_checkpoint(folder: Path) -> GoogleCheckpoint | None:
    """Open the TensorFlow checkpoint of a folder of Google's layout; None for any other folder."""
    prefix = None if _has_weights(folder) else _google_prefix(folder)
    return None if prefix is None else GoogleCheckpoint(prefix)


def read_bundle(
    folder: Path,
    kind: str | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    drop: Sequence[str] | None = None,
    fresh_head: bool = False,
    seed: int = 0,
    **changes: object,
) -> Bundle:
    """Read a model folder; `changes` go into its configuration (`num_labels=3`, `hidden_dropout_prob=0.0`).

    `kind`, `drop`, `fresh_head` and `seed` are those of `fit`. `tokenizer` is for weights that are kept
    apart from their vocabulary.
    """
    config, source = open_model(folder)
    if "num_labels" in changes:
        changes.setdefault("id2label", None)
    if changes:
        config = config.derive(**changes)
    model = fit(config, source, kind, drop=drop or (), fresh_head=fresh_head, seed=seed)
    tokenizer = tokenizer or tokenizer_of(folder)
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise TokenizerError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} pieces, the model {config.vocab_size}: "
            "they do not belong together"
        )
    extras = _read_extras(folder)
    whitening = read_whitening(folder, extras)
    return Bundle(
        model,
        tokenizer,
        max_length_of(folder, config),
        read_task(folder),
        extras,
        read_pooling(folder),
        whitening,
        unknown_steps(folder),
    )


def read_task(folder: Path) -> dict[str, Any] | None:
    """The kind of a fine-tuned model's task, and its options; None where Bertsmith has not fine-tuned it."""
    record = read_json(folder / TASK_FILE).get("task") if (folder / TASK_FILE).is_file() else None
    if record is None:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str) or "options" not in record:
        raise InputError(f"{folder / TASK_FILE}: names no task with a kind and options")
    return record


def _read_extras(folder: Path) -> dict[str, torch.Tensor]:
    if not (folder / EXTRA_FILE).is_file():
        return {}
    source = SafetensorsFile(folder / EXTRA_FILE)
    return {name: source.read(name) for name in source.tensors}


def write_bundle(folder: Path, bundle: Bundle, *, source: str, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write a Hugging Face folder: aside first, then renamed. `source` says in the card where it is from."""
    with new_folder(folder) as aside:
        _write_files(aside, bundle, source, max_shard_bytes)


def _write_files(folder: Path, bundle: Bundle, source: str, max_shard_bytes: int) -> None:
    model = bundle.model
    config = published_config(model)
    (folder / "config.json").write_text(config.to_json(), encoding="utf-8")
    _write_weights(folder, tensors_of(model), max_shard_bytes)
    record = {"task": bundle.task} if bundle.task is not None else {}
    if bundle.pooling is not None:
        record["embedding"] = bundle.pooling.model_dump(mode="json")
    if record:
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (folder / TASK_FILE).write_text(text + "\n", encoding="utf-8")
    if extras := bundle.extras | extra_tensors(model) | whitening_tensors(bundle.whitening):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in extras.items()}, folder / EXTRA_FILE)
    if bundle.tokenizer is not None:
        bundle.tokenizer.save(folder, max_length=_cut_elsewhere(bundle))
    if bundle.max_length != config.max_position_embeddings:
        length = json.dumps({"max_seq_length": bundle.max_length, "do_lower_case": False}, indent=2)
        (folder / "sentence_bert_config.json").write_text(length + "\n", encoding="utf-8")
    (folder / "README.md").write_text(model_card(bundle.model, bundle.tokenizer, source, bundle.task), encoding="utf-8")


def _cut_elsewhere(bundle: Bundle) -> int:
    """After how many pieces others should cut a text; where our task reads windows, they take what the model can."""
    if bundle.task is None or bundle.model.kind not in ("classification", "choice"):
        return bundle.max_length
    options = bundle.task["options"]  # perhaps from elsewhere, and of any kind
    length = options.get("max_length") if isinstance(options, dict) else None
    return length if isinstance(length, int) else bundle.max_length


def _write_weights(folder: Path, tensors: dict[str, torch.Tensor], max_shard_bytes: int) -> None:
    """One file, or numbered shards with an index where one would be too large."""
    if _is_bare(tensors):
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    shards = _shards(tensors, max_shard_bytes)
    if len(shards) == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    places = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(names, file))
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _is_bare(tensors: dict[str, torch.Tensor]) -> bool:
    """`BertModel` alone is stored without the `bert.` that every model with a head has."""
    return all(name.startswith("bert.") for name in tensors)


def _shards(tensors: dict[str, torch.Tensor], max_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > max_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.nbytes
    return shards


def _google_prefix(folder: Path) -> Path | None:
    """The checkpoint's prefix; where there are several, only Google's own name will do."""
    if not (folder / "bert_config.json").is_file():
        return None
    indexes = sorted(folder.glob("*.ckpt*.index"))
    named = [path for path in indexes if path.name == "bert_model.ckpt.index"] or indexes
    return named[0].with_suffix("") if len(named) == 1 else None


def tokenizer_of(folder: Path) -> Tokenizer | None:
    """The tokenizer of a model folder, where it has one."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return None
    return Tokenizer.from_folder(folder)


def max_length_of(folder: Path, config: BertConfig) -> int:
    """What a sentence model was trained for, where sentence-transformers' files say it; otherwise the positions."""
    positions = config.max_position_embeddings
    settings, tokenizer = folder / "sentence_bert_config.json", folder / "tokenizer_config.json"
    length = read_json(settings).get("max_seq_length") if settings.is_file() else None
    if length is None and (folder / "modules.json").is_file() and tokenizer.is_file():  # its newer folders
        length = read_json(tokenizer).get("model_max_length")
        return length if isinstance(length, int) and 3 <= length <= positions else positions
    if length is None:
        return positions
    if not isinstance(length, int) or not 3 <= length <= positions:
        raise InputError(f"{settings}: max_seq_length must be from 3 to {positions}, not {length!r}")
    return length
