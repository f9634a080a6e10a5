"""A model as an ONNX graph, which runs without torch and without Bertsmith.

Comes in: a `Bundle`. Goes out: a folder with `model.onnx`, the tokenizer, `config.json` and a card; it appears only if
the graph, run by onnxruntime, gave what our packed model gives. The graph takes padded batches of any size and length.

Torch has two exporters. The older one, which traces, is used: it is tens of times faster, and onnxruntime runs both
graphs at about the same speed. All that tracing could get wrong shows in the check.

Shapes: B sequences, S places in the longest, H width, A heads, D = H / A; T tokens that are not padding.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bertsmith.bundle.card import about_reading
from bertsmith.bundle.embedding import describe, refuse_unfit
from bertsmith.bundle.fitting import published_config
from bertsmith.data.batches import PackedBatch
from bertsmith.errors import BertsmithError, InputError
from bertsmith.folders import new_folder
from bertsmith.model.encoder import Layer
from bertsmith.model.heads import ChoiceModel, MaskedLM, PairModel, PreTrainingModel, SpanModel, Tagger
from bertsmith.model.pooling import Pooling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bertsmith.bundle.folder import Bundle
    from bertsmith.model.pooling import Whitening
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["OUTPUTS", "OnnxExport", "require_onnx", "write_onnx"]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# What each kind of model gives, and the shape of it.
OUTPUTS = {
    "encoder": {"last_hidden_state": "batch, length, width", "sentence_embedding": "batch, width"},
    "pretraining": {"prediction_logits": "batch, length, vocabulary", "seq_relationship_logits": "batch, 2"},
    "mlm": {"logits": "batch, length, vocabulary"},
    "pair": {"logits": "batch, 2"},
    "classification": {"logits": "batch, labels"},
    "choice": {"logits": "batch"},
    "tagging": {"logits": "batch, length, labels"},
    "span": {"start_logits": "batch, length", "end_logits": "batch, length"},
}
TOLERANCE = 1e-4  # of the largest value, where that is above 1
MAX_FILE_BYTES = 2 * 10**9 - 10**7  # a protocol buffer ends at 2 GiB; the graph itself needs some
_OPSET = 17  # the first with LayerNormalization
_SENTENCES = (
    "A cat sleeps on the warm stove.",
    "Shares fell.",
    "The committee will meet again on Monday to vote on the budget for the coming year.",
    "How do I open a file and read it line by line?",
    "Although it had rained all night, the river, which rises in the hills, stayed within its banks.",
    "Das Wetter ist heute schön, und die Straßen sind leer.",
    "今天天气很好，我们去公园散步。",
    "x = [n ** 2 for n in range(10)]",
)


@dataclass(frozen=True)
class OnnxExport:
    """What the checks of an export found.

    `difference` is the largest between graph and packed model, relative where values are above 1. With int8:
    the cosines between int8 and float32 for some sentences, and of which output.
    """

    difference: float
    num_batches: int
    output: str
    cosines: tuple[float, ...] = ()


def require_onnx() -> None:
    """Say before any work is done what is not installed."""
    for name in ("onnx", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise InputError(f"--to onnx needs {name}: pip install 'bertsmith[onnx]'") from error


@torch.no_grad()
def write_onnx(
    folder: Path, bundle: Bundle, *, source: str, int8: bool = False, max_file_bytes: int = MAX_FILE_BYTES
) -> OnnxExport:
    """Export, check, and write the folder; weights beyond `max_file_bytes` go into `model.onnx.data`."""
    require_onnx()
    bundle = replace(bundle, pooling=bundle.pooling or Pooling())
    assert bundle.pooling is not None
    refuse_unfit(bundle.pooling, bundle.whitening, bundle.model.config)
    graph = PaddedGraph(bundle).eval()  # and the model in it: the exporter gives it back as it was
    with new_folder(folder) as aside:
        scratch = aside / "scratch"
        scratch.mkdir()
        _export(graph, scratch / "model.onnx")
        split = _num_bytes(bundle) > max_file_bytes
        result = _check(_session(scratch / "model.onnx"), bundle)
        if int8:
            _quantize(scratch / "model.onnx", aside / "model.onnx", split=split)
            sessions = _session(scratch / "model.onnx"), _session(aside / "model.onnx")
            result = replace(result, cosines=_cosines(*sessions, bundle, result.output))
        elif split:
            _save_split(scratch / "model.onnx", aside / "model.onnx")
            _check(_session(aside / "model.onnx"), bundle)
        else:
            (scratch / "model.onnx").rename(aside / "model.onnx")
        shutil.rmtree(scratch)
        (aside / "config.json").write_text(published_config(bundle.model).to_json(), encoding="utf-8")
        if bundle.tokenizer is not None:
            bundle.tokenizer.save(aside, max_length=bundle.max_length)
        (aside / "README.md").write_text(_card(bundle, source, result), encoding="utf-8")
    return result


class PaddedGraph(nn.Module):
    """A model over a padded batch, in plain steps that ONNX knows. Padding stands at the end of a row."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self.model = bundle.model
        self.pooling = bundle.pooling or Pooling()
        self.whitening = bundle.whitening

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Three (B, S) to the outputs of the model's kind, in the order of `OUTPUTS`."""
        states = self._states(input_ids, attention_mask, token_type_ids)
        model, rows = self.model, states[-1]  # (B, S, H)
        if model.kind == "encoder":
            return rows, self._vectors(states, attention_mask)
        if isinstance(model, PreTrainingModel):
            words = model.mlm(rows, model.encoder.embeddings.word.weight)
            return words, model.pair(model.encoder.pool(rows[:, 0]))
        if isinstance(model, MaskedLM):
            return (model.mlm(rows, model.encoder.embeddings.word.weight),)
        if isinstance(model, SpanModel):
            logits = model.span(rows)  # (B, S, 2)
            return logits[:, :, 0], logits[:, :, 1]
        if isinstance(model, Tagger):
            return (model.classifier(rows),)
        head = model.pair if isinstance(model, PairModel) else model.classifier
        assert isinstance(head, nn.Linear)
        logits = head(model.encoder.pool(rows[:, 0]))
        return (logits[:, 0] if isinstance(model, ChoiceModel) else logits,)

    def _states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> list[torch.Tensor]:
        """The embeddings and each layer's output, all (B, S, H)."""
        tables = self.model.encoder.embeddings
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = tables.norm(tables.word(input_ids) + tables.token_type(token_type_ids) + tables.position(places))
        # Not -inf: a row of padding alone would be 0 / 0.
        hidden = (1 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min  # (B, 1, 1, S)
        states = [x]
        for layer in self.model.encoder.layers:
            assert isinstance(layer, Layer)
            x = layer.attention_norm(x + layer.attention_output(self._attend(layer, x, hidden)))
            x = layer.output_norm(x + layer.down(layer.activation(layer.up(x))))
            states.append(x)
        return states

    def _attend(self, layer: Layer, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        num, length, width = x.shape
        heads = layer.attention.num_heads
        size = width // heads
        parts = layer.attention.qkv(x).view(num, length, 3, heads, size).permute(2, 0, 3, 1, 4)  # (3, B, A, S, D)
        query, key, value = parts.unbind(0)
        scores = query @ key.transpose(-1, -2) * size**-0.5 + hidden  # (B, A, S, S)
        return (scores.softmax(-1) @ value).transpose(1, 2).reshape(num, length, width)

    def _vectors(self, states: list[torch.Tensor], attention_mask: torch.Tensor) -> torch.Tensor:
        """(B, D): what `Pooling.vectors` makes, whitened and scaled."""
        pooling = self.pooling
        chosen = [states[number] for number in pooling.numbers(len(states) - 1) or [-1]]
        mask = attention_mask[:, :, None].to(chosen[0].dtype)  # (B, S, 1)
        if pooling.pool == "last4":
            vectors = torch.cat([_mean(rows, mask) for rows in chosen], dim=1)
        else:
            rows = chosen[0] if len(chosen) == 1 else torch.stack(chosen).mean(0)
            if pooling.pool == "cls":
                vectors = rows[:, 0]
            elif pooling.pool == "max":
                vectors = rows.masked_fill(mask == 0, torch.finfo(rows.dtype).min).amax(1)
            else:
                vectors = _mean(rows, mask)
        return _finish(vectors, self.pooling, self.whitening)


def _mean(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (rows * mask).sum(1) / mask.sum(1).clamp_min(1)


def _finish(vectors: torch.Tensor, pooling: Pooling, whitening: Whitening | None) -> torch.Tensor:
    if whitening is not None:
        vectors = whitening(vectors)
    return F.normalize(vectors, dim=1) if pooling.normalize else vectors


def _export(graph: PaddedGraph, path: Path) -> None:
    names = list(OUTPUTS[graph.model.kind])
    shapes = OUTPUTS[graph.model.kind].values()
    axes: dict[str, dict[int, str]] = {name: {0: "batch", 1: "length"} for name in INPUTS}
    for name, shape in zip(names, shapes, strict=True):
        axes[name] = {0: "batch", 1: "length"} if "length" in shape else {0: "batch"}
    example = torch.ones((2, 3), dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's age
        torch.onnx.export(
            graph,
            (example, example, torch.zeros_like(example)),
            str(path),
            dynamo=False,
            input_names=list(INPUTS),
            output_names=names,
            dynamic_axes=axes,
            opset_version=_OPSET,
        )


def _num_bytes(bundle: Bundle) -> int:
    """Of the weights in the graph, where the word embeddings stand twice if they are a masked-word head's too."""
    total = sum(parameter.nbytes for parameter in bundle.model.parameters())
    if isinstance(bundle.model, MaskedLM | PreTrainingModel):
        total += bundle.model.encoder.embeddings.word.weight.nbytes
    return total


def _save_split(path: Path, target: Path) -> None:
    """The same graph with its weights in one file beside it."""
    onnx = import_module("onnx")
    onnx.save_model(
        onnx.load(str(path)),
        str(target),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=f"{target.name}.data",
    )


def _quantize(path: Path, target: Path, *, split: bool) -> None:
    """Weights to int8, a scale for each channel; activations are quantised as they come."""
    quantization = import_module("onnxruntime.quantization")
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)  # it advises steps for images
    try:
        quantization.quantize_dynamic(str(path), str(target), per_channel=True, use_external_data_format=split)
    finally:
        logger.setLevel(before)


def _session(path: Path) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _check(session: Any, bundle: Bundle) -> OnnxExport:
    """Run the graph on batches of several shapes; what differs from the packed model is an error."""
    worst, batches = 0.0, list(_trials(bundle))
    for batch, spare in batches:
        expected = _packed_outputs(bundle, batch)
        for name, found in _run(session, bundle, batch, spare).items():
            right = expected[name].numpy()
            fits = found.shape == right.shape
            difference = float(np.abs(found - right).max() / max(1.0, np.abs(right).max())) if fits else float("inf")
            if not difference <= TOLERANCE:  # also where it is no number
                raise BertsmithError(
                    f"the exported graph is not the model: {name} differs by {difference:.1e} for sequences of "
                    f"{batch.lengths.tolist()} tokens ({TOLERANCE:.0e} is allowed); nothing was written"
                )
            worst = max(worst, difference)
    names = list(OUTPUTS[bundle.model.kind])
    return OnnxExport(worst, len(batches), names[-1] if bundle.model.kind == "encoder" else names[0])


def _trials(bundle: Bundle) -> Iterator[tuple[PackedBatch, int]]:
    """Batches of one token, of the longest, and mixed; with a number of columns of padding more than is needed."""
    config = bundle.model.config
    longest = config.max_position_embeddings
    generator = torch.Generator().manual_seed(0)
    for lengths, spare in (((1,), 0), ((1,), 3), ((longest,), 0), ((2, 7, 1, 4), 2), ((33, 5, 20), 0), ((9, 9), 0)):
        sizes = [min(length, longest) for length in lengths]
        total = sum(sizes)
        ids = torch.randint(config.vocab_size, (total,), generator=generator)
        types = torch.randint(config.type_vocab_size, (total,), generator=generator)
        yield PackedBatch(ids, types, torch.tensor(sizes)), min(spare, longest - max(sizes))


def _packed_outputs(bundle: Bundle, batch: PackedBatch) -> dict[str, torch.Tensor]:
    """What the packed model gives: (T, …) for tokens and (B, …) for sequences, under the graph's names."""
    model, given = bundle.model, (batch.input_ids, batch.token_type_ids, batch.lengths)
    found: tuple[torch.Tensor, ...]
    if model.kind == "encoder":
        assert bundle.pooling is not None
        vectors = bundle.pooling.vectors(model.encoder, *given)
        found = (model.encoder(*given).rows, _finish(vectors, bundle.pooling, bundle.whitening))
    elif isinstance(model, PreTrainingModel | MaskedLM):
        logits = model(*given, torch.arange(len(batch.input_ids)))
        found = tuple(logits) if isinstance(model, PreTrainingModel) else (logits,)
    else:
        logits = model(*given)
        found = logits.unbind(1) if isinstance(model, SpanModel) else (logits,)
    return dict(zip(OUTPUTS[model.kind], found, strict=True))


def _run(session: Any, bundle: Bundle, batch: PackedBatch, spare: int = 0) -> dict[str, np.ndarray]:
    """The graph's outputs for a packed batch: padded with what is no padding token, run, and unpadded."""
    width = int(batch.lengths.max()) + spare
    kept = torch.arange(width) < batch.lengths[:, None]  # (B, S)
    ids = torch.full(kept.shape, bundle.model.config.vocab_size - 1).masked_scatter(kept, batch.input_ids)
    types = torch.zeros_like(ids).masked_scatter(kept, batch.token_type_ids)
    grids = (grid.to(torch.int64).numpy() for grid in (ids, kept, types))
    found = session.run(None, dict(zip(INPUTS, grids, strict=True)))
    shapes = OUTPUTS[bundle.model.kind]
    return {
        name: grid[kept.numpy()] if "length" in shape else grid
        for (name, shape), grid in zip(shapes.items(), found, strict=True)
    }


def _cosines(exact: Any, rounded: Any, bundle: Bundle, output: str) -> tuple[float, ...]:
    """How near int8 is to float32, one sentence at a time."""
    if bundle.tokenizer is None:
        sequences = [batch.input_ids.tolist() for batch, _ in _trials(bundle)]
    else:
        sequences = bundle.tokenizer.encode_ids(_SENTENCES, max_length=bundle.max_length)
    found = []
    for sequence in sequences:
        batch = PackedBatch.of([sequence[: bundle.max_length]])
        one, other = (_run(session, bundle, batch)[output].ravel() for session in (exact, rounded))
        found.append(float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-30)))
    return tuple(found)


def _card(bundle: Bundle, source: str, result: OnnxExport) -> str:
    """Inputs, outputs and how to run it."""
    kind, longest = bundle.model.kind, bundle.model.config.max_position_embeddings
    weights = "int8 weights, a scale for each channel" if result.cosines else "float32"
    lines = [
        "---",
        "library_name: onnx",
        "tags: [bert, bertsmith, onnx]",
        "---",
        "",
        f"# A BERT model as ONNX ({kind})",
        "",
        f"Source: {source}. Written by Bertsmith; {weights}.",
        "",
        "| | type | shape |",
        "|---|---|---|",
        *(f"| input `{name}` | int64 | batch, length |" for name in INPUTS),
        *(f"| output `{name}` | float32 | {shape} |" for name, shape in OUTPUTS[kind].items()),
        "",
        f"Batch and length are free, up to {longest} tokens. Padding stands at the end of a row, where",
        "`attention_mask` is 0; it changes nothing, and the outputs in its place mean nothing.",
        "",
        *about_reading(bundle.task),
    ]
    if kind == "encoder":
        assert bundle.pooling is not None
        steps = describe(bundle.pooling, whitened=bundle.whitening is not None)
        lines += [f"`sentence_embedding` is the {steps}.", ""]
    return "\n".join(lines + ([] if bundle.tokenizer is None else _usage(bundle.tokenizer, bundle.max_length, kind)))


def _usage(tokenizer: Tokenizer, max_length: int, kind: str) -> list[str]:
    padding = f"pad_id={tokenizer.pad_id}, pad_token={json.dumps(tokenizer.piece(tokenizer.pad_id))}"
    return [
        "```python",
        "import numpy as np",
        "import onnxruntime",
        "from tokenizers import Tokenizer",
        "",
        'tokenizer = Tokenizer.from_file("tokenizer.json")',
        f"tokenizer.enable_truncation({max_length})",
        f"tokenizer.enable_padding({padding})",
        'rows = tokenizer.encode_batch(["A first text.", "Another."])',
        "inputs = {",
        '    "input_ids": np.array([row.ids for row in rows], np.int64),',
        '    "attention_mask": np.array([row.attention_mask for row in rows], np.int64),',
        '    "token_type_ids": np.array([row.type_ids for row in rows], np.int64),',
        "}",
        'session = onnxruntime.InferenceSession("model.onnx")',
        f"[{', '.join(OUTPUTS[kind])}] = session.run(None, inputs)",
        "```",
        "",
    ]
