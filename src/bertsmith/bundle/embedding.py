"""How a model folder says that its sentence vectors are made: `bertsmith.json`, or sentence-transformers' own files.

Of the latter, `modules.json` lists the steps: Transformer, Pooling, perhaps Dense, perhaps Normalize. Bertsmith reads
the way of pooling, and a Dense without activation as a whitening. It scales vectors to length 1 only where it is asked
to, so Normalize counts when a folder is exported (`read_published_pooling`), and not when it is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.bundle.sources import open_weights
from bertsmith.bundle.weights import FLOATS
from bertsmith.config import read_json
from bertsmith.errors import InputError, WeightsError
from bertsmith.model.heads import BertModel
from bertsmith.model.pooling import Pooling, Whitening
from bertsmith.settings import validated

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.bundle.folder import Bundle
    from bertsmith.config import BertConfig

__all__ = [
    "TASK_FILE",
    "describe",
    "encoder_of",
    "read_pooling",
    "read_published_pooling",
    "read_whitening",
    "refuse_unfit",
    "unknown_steps",
    "whitening_tensors",
]

TASK_FILE = "bertsmith.json"
_PREFIX = "whitening."
_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
_MODULES_LIMIT = 2**20
# What Bertsmith can do of a chain of modules.
_CHAINS = [
    ["Transformer", "Pooling", *dense, *normalize] for dense in ([], ["Dense"]) for normalize in ([], ["Normalize"])
]


def read_pooling(folder: Path) -> Pooling | None:
    """What a folder says; None where it says nothing, or something that `Pooling` cannot do."""
    ours = _our_pooling(folder)
    if ours is not None:
        return ours
    theirs = folder / "1_Pooling" / "config.json"
    pool = _their_pool(read_json(theirs)) if theirs.is_file() else None
    return None if pool is None else validated(Pooling, {"pool": pool})


def read_published_pooling(folder: Path) -> Pooling | None:
    """As `read_pooling`, scaled where `modules.json` says so; steps that we do not know are an error, not left out."""
    ours, modules = _our_pooling(folder), _read_modules(folder)
    if ours is not None or not modules:
        return ours or read_pooling(folder)
    names = [module.name for module in modules]
    if names not in _CHAINS:
        raise InputError(
            f"{folder / 'modules.json'}: the steps {', '.join(names)!s:.200} are not Transformer, Pooling and perhaps "
            "Dense and Normalize; no others are known"
        )
    pooling = read_pooling(folder)
    if pooling is None:
        raise InputError(f"{folder / '1_Pooling'}: pools in a way that is not known; mean, cls and max are")
    if "Dense" in names and _dense_whitening(folder) is None:
        raise InputError(f"{folder / 'modules.json'}: a Dense step that is more than a linear map is not known")
    return pooling.model_copy(update={"normalize": "Normalize" in names})


def unknown_steps(folder: Path) -> str | None:
    """Why the vectors that a folder is meant to give cannot be made here, where that is so."""
    try:
        read_published_pooling(folder)
    except InputError as error:
        return str(error)
    return None


def encoder_of(bundle: Bundle) -> Bundle:
    """A bundle without its head: what makes the vectors. The weights are shared."""
    with torch.device("meta"):
        encoder = BertModel(bundle.model.config, pooler=bundle.model.encoder.pooler is not None)
    encoder.encoder = bundle.model.encoder
    return replace(bundle, model=encoder.eval(), task=None, extras={})


def _our_pooling(folder: Path) -> Pooling | None:
    if not (folder / TASK_FILE).is_file():
        return None
    record = read_json(folder / TASK_FILE).get("embedding")
    return None if record is None else validated(Pooling, record, f"{folder / TASK_FILE}: embedding: ")


def _their_pool(config: dict[str, Any]) -> str | None:
    """One way of pooling, by its new name or by its old switches."""
    if config.get("pooling_mode") in _MODES.values():
        return str(config["pooling_mode"])
    switched = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    return _MODES.get(switched[0]) if len(switched) == 1 else None


@dataclass(frozen=True)
class _Module:
    """One step of `modules.json`: the name of its class, and its folder."""

    name: str
    path: str


def _read_modules(folder: Path) -> list[_Module]:
    """The steps of `modules.json`; none where there is no such file."""
    file = folder / "modules.json"
    if not file.is_file():
        return []
    try:
        with file.open("rb") as opened:
            content = json.loads(opened.read(_MODULES_LIMIT).decode("utf-8"))
        modules = [_Module(str(entry["type"]).rpartition(".")[2], entry["path"]) for entry in content]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise InputError(f"{file}: not a list of modules with type and path ({error})") from error
    for module in modules:
        if not isinstance(module.path, str) or module.path == ".." or set(module.path) & set("/\\\0"):
            raise InputError(f"{file}: points to {module.path!r:.120}, which is not a folder beside it")
    return modules


def read_whitening(folder: Path, extras: dict[str, torch.Tensor]) -> Whitening | None:
    """From the tensors beside a model, which are taken out of `extras`; or from a Dense step of another's folder."""
    found = {name: extras.pop(name) for name in list(extras) if name.startswith(_PREFIX)}
    if not found:
        return None if _our_pooling(folder) is not None else _dense_whitening(folder)
    try:
        return Whitening(found.pop(f"{_PREFIX}mean"), found.pop(f"{_PREFIX}kernel"))
    except (KeyError, InputError) as error:
        raise WeightsError(f"{folder}: bertsmith.safetensors holds no whole whitening ({error})") from error


def _dense_whitening(folder: Path) -> Whitening | None:
    """The one Dense step as a whitening; None where there is none, or it is more than a linear map."""
    steps = [module for module in _read_modules(folder) if module.name == "Dense"]
    if len(steps) != 1 or not _is_linear(read_json(folder / steps[0].path / "config.json")):
        return None
    source = open_weights(folder / steps[0].path)
    for name, size in (("linear.weight", 2), ("linear.bias", 1)):
        info = source.tensors.get(name)
        if info is not None and (len(info.shape) != size or info.dtype not in FLOATS):
            raise WeightsError(f"{source.path}: {name} {info.shape} of type {info.dtype} is no linear layer's")
    if "linear.weight" not in source.tensors:
        raise WeightsError(f"{source.path}: no tensor linear.weight")
    weight = source.read("linear.weight").double()  # (D', D)
    mean = torch.zeros(weight.shape[1], dtype=torch.float64)
    if "linear.bias" in source.tensors:
        bias = source.read("linear.bias").double()
        if len(bias) != len(weight):
            raise WeightsError(f"{source.path}: linear.bias {tuple(bias.shape)} does not fit {tuple(weight.shape)}")
        mean = torch.linalg.lstsq(weight, -bias[:, None]).solution[:, 0].float().double()  # as it will be kept
        if not torch.allclose(weight @ mean, -bias, rtol=1e-5, atol=1e-6):
            return None  # no mean gives this bias
    return Whitening(mean.float(), weight.T.float().contiguous())


def _is_linear(config: dict[str, Any]) -> bool:
    plain = str(config.get("activation_function")).endswith(".Identity") and not config.get("use_residual")
    names = {config.get(f"module_{side}_name") or "sentence_embedding" for side in ("input", "output")}
    return plain and names == {"sentence_embedding"}


def whitening_tensors(whitening: Whitening | None) -> dict[str, torch.Tensor]:
    """A whitening as tensors to save."""
    if whitening is None:
        return {}
    return {f"{_PREFIX}mean": whitening.mean, f"{_PREFIX}kernel": whitening.kernel}


def refuse_unfit(pooling: Pooling, whitening: Whitening | None, config: BertConfig) -> None:
    """A whitening must be of the vectors that the pooling gives, and the pooling's layers must be there."""
    pooling.numbers(config.num_hidden_layers)
    width = pooling.width(config.hidden_size)
    if whitening is not None and len(whitening.mean) != width:
        raise InputError(f"the whitening is of vectors of {len(whitening.mean)} numbers, the model's have {width}")


def describe(pooling: Pooling, *, whitened: bool) -> str:
    """How vectors are made, in words.

    >>> describe(Pooling(normalize=True), whitened=False)
    'mean over tokens, scaled to length 1'
    """
    words = {"mean": "mean over tokens", "max": "maximum over tokens", "cls": "row of [CLS]"}
    layers = "" if pooling.layers is None else f" of layers {', '.join(map(str, pooling.layers))}"
    steps = [words.get(pooling.pool, f"pooling {pooling.pool}") + layers]
    return ", ".join(steps + ["whitened"] * whitened + ["scaled to length 1"] * pooling.normalize)
