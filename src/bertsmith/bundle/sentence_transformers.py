"""A model as a folder of sentence-transformers, laid out as version 6.2.0 itself writes it.

Comes in: a `Bundle`. Goes out: the Hugging Face folder that `write_bundle` makes, with `modules.json` and a small
folder for each step after the transformer: pooling, whitening as a Dense without activation, scaling to length 1. The
library is not needed to write it; the files are small.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from bertsmith.bundle.embedding import describe, encoder_of, refuse_unfit
from bertsmith.bundle.folder import write_bundle
from bertsmith.errors import InputError, TokenizerError
from bertsmith.folders import flush, new_folder
from bertsmith.model.pooling import Pooling

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from bertsmith.bundle.folder import Bundle
    from bertsmith.model.pooling import Whitening

__all__ = ["ENCODERS", "write_sentence_transformers"]

_VERSION = "6.2.0"
_CLASSES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
_POOLS = ("mean", "cls", "max")
ENCODERS = ("encoder", "pretraining", "mlm", "pair")
_ENDS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


def write_sentence_transformers(folder: Path, bundle: Bundle, *, source: str) -> Bundle:
    """Write the folder, aside first; gives what was written: the encoder, without pre-training heads."""
    bundle = _as_sentence_encoder(bundle)
    pooling, whitening = bundle.pooling, bundle.whitening
    assert pooling is not None
    with new_folder(folder) as aside:
        write_bundle(aside / "model", bundle, source=source)
        for file in (aside / "model").iterdir():
            file.rename(aside / file.name)
        (aside / "model").rmdir()
        steps = {"Pooling": _pooling_config(bundle)}
        if whitening is not None:
            steps["Dense"] = _dense_config(whitening)
        if pooling.normalize:
            steps["Normalize"] = dict(_ENDS)
        paths = {"Transformer": ""} | {name: f"{number}_{name}" for number, name in enumerate(steps, start=1)}
        for name, config in steps.items():
            (aside / paths[name]).mkdir()
            _write_json(aside / paths[name] / "config.json", config)
        if whitening is not None:
            save_file(_dense_tensors(whitening), aside / paths["Dense"] / "model.safetensors")
        for name in steps:
            for file in (aside / paths[name]).iterdir():
                flush(file)
        _write_json(aside / "modules.json", _modules(paths))
        _write_json(aside / "sentence_bert_config.json", _transformer_config(bundle))
        _write_json(aside / "config_sentence_transformers.json", _model_config())
        (aside / "README.md").write_text(_card(bundle, source), encoding="utf-8")
    return bundle


def _as_sentence_encoder(bundle: Bundle) -> Bundle:
    """The part of a bundle that makes vectors; refused where it has none, or makes them as their modules cannot."""
    model, pooling = bundle.model, bundle.pooling or Pooling()
    if model.kind not in ENCODERS:
        raise InputError(
            f"a model of kind {model.kind!r} makes no sentence vectors; "
            f"only {', '.join(ENCODERS)} can go to sentence-transformers"
        )
    if bundle.tokenizer is None:
        raise TokenizerError("this model has no tokenizer, and sentence-transformers needs one")
    last = model.config.num_hidden_layers
    if pooling.pool not in _POOLS or pooling.numbers(last) is not None:
        raise InputError(
            f"sentence-transformers has no module for the {describe(pooling, whitened=False)}; "
            f"{', '.join(_POOLS)} of the last layer can be exported (and everything to ONNX)"
        )
    refuse_unfit(pooling, bundle.whitening, model.config)
    return replace(encoder_of(bundle), pooling=pooling)


def _modules(paths: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"idx": number, "name": str(number), "path": path, "type": _CLASSES[name]}
        for number, (name, path) in enumerate(paths.items())
    ]


def _transformer_config(bundle: Bundle) -> dict[str, Any]:
    """Theirs, and the longest input, which they keep in the tokenizer's file only and read here as well."""
    return {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
        "max_seq_length": bundle.max_length,
    }


def _pooling_config(bundle: Bundle) -> dict[str, Any]:
    assert bundle.pooling is not None
    width = bundle.model.config.hidden_size
    return {"embedding_dimension": width, "pooling_mode": bundle.pooling.pool, "include_prompt": True}


def _dense_config(whitening: Whitening) -> dict[str, Any]:
    width, kept = whitening.kernel.shape
    return {
        "in_features": width,
        "out_features": kept,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
        **_ENDS,
    }


def _dense_tensors(whitening: Whitening) -> dict[str, torch.Tensor]:
    """(x - mean) · kernel as x · kernel + bias; the bias is summed in float64, because all vectors carry its error."""
    bias = -(whitening.mean.double() @ whitening.kernel.double())
    return {"linear.weight": whitening.kernel.T.float().contiguous(), "linear.bias": bias.float()}


def _model_config() -> dict[str, Any]:
    return {
        "__version__": {"sentence_transformers": _VERSION},
        "default_prompt_name": None,
        "model_type": "SentenceTransformer",
        "prompts": {"document": "", "query": ""},
        "similarity_fn_name": "cosine",
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _card(bundle: Bundle, source: str) -> str:
    assert bundle.pooling is not None
    config = bundle.model.config
    width = config.hidden_size if bundle.whitening is None else bundle.whitening.kernel.shape[1]
    return "\n".join(
        [
            "---",
            "library_name: sentence-transformers",
            "pipeline_tag: sentence-similarity",
            "tags: [sentence-transformers, feature-extraction, sentence-similarity, bert, bertsmith]",
            "---",
            "",
            "# Sentence vectors from a BERT",
            "",
            f"Source: {source}. Written by Bertsmith.",
            "",
            "| | |",
            "|---|---|",
            f"| vector | {width} numbers: {describe(bundle.pooling, whitened=bundle.whitening is not None)} |",
            f"| longest text | {bundle.max_length} tokens |",
            f"| shape | {config.num_hidden_layers} × {config.hidden_size}, {config.num_attention_heads} heads |",
            "",
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            'model = SentenceTransformer("path/to/this/folder")',
            'vectors = model.encode(["A cat sleeps.", "A kitten is asleep."])',
            "```",
            "",
            '`bertsmith.load("path/to/this/folder")` opens it as well.',
            "",
        ]
    )
