"""ONNX folders: what onnxruntime makes of them is what the packed model makes, whatever the batch and its padding."""

from __future__ import annotations

import re

import onnxruntime
import pytest
import torch
import torch.nn.functional as F

from bertsmith.bundle import onnx as export
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.bundle.names import ARCHITECTURES
from bertsmith.bundle.onnx import OUTPUTS, write_onnx
from bertsmith.bundle.resolve import load_bundle
from bertsmith.data.batches import PackedBatch
from bertsmith.errors import BertsmithError, InputError
from bertsmith.model.pooling import Pooling, Whitening
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import TINY, mixed_batch, padded, random_model, unpadded

POOLINGS = [
    Pooling(),
    Pooling(pool="cls", normalize=True),
    Pooling(pool="max", layers=(0, 2)),
    Pooling(pool="last4", normalize=True),
    Pooling(pool="first-last"),
]


def toy_tokenizer():
    return Tokenizer.from_pieces([*SPECIAL_TOKENS, *(chr(number) for number in range(33, 65)), "word", "##s"])


def toy_whitening(width, kept):
    return Whitening.fit(torch.randn(200, width, generator=torch.Generator().manual_seed(1)) * 2 + 1, kept)


def run(folder, inputs):
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {name: grid.numpy() for name, grid in inputs.items()})
    return {name: torch.from_numpy(grid) for name, grid in zip(names, found, strict=True)}


def ours(model, batch):
    """The packed model's own output, as a list in the graph's order."""
    given = (batch.input_ids, batch.token_type_ids, batch.lengths)
    everything = torch.arange(len(batch.input_ids))
    if model.kind == "encoder":
        return [model.encoder(*given).rows]
    if model.kind in ("mlm", "pretraining"):
        logits = model(*given, everything)
        return list(logits) if model.kind == "pretraining" else [logits]
    logits = model(*given)
    return list(logits.unbind(1)) if model.kind == "span" else [logits]


@pytest.mark.parametrize("kind", sorted(ARCHITECTURES))
@torch.no_grad()
def test_every_kind_gives_what_the_packed_model_gives(kind, tmp_path):
    model = random_model(kind)
    write_onnx(tmp_path / "onnx", Bundle(model, toy_tokenizer(), 64), source="a test")
    batch = mixed_batch()
    found = run(tmp_path / "onnx", padded(batch))
    assert list(found) == list(OUTPUTS[kind])
    for grid, right in zip(found.values(), ours(model, batch), strict=False):
        if grid.shape[:2] == padded(batch)["input_ids"].shape:
            grid = unpadded(grid, batch)
        torch.testing.assert_close(grid, right, rtol=0, atol=1e-4)
    assert not model.training


@pytest.mark.parametrize("pooling", POOLINGS, ids=lambda pooling: f"{pooling.pool}-{pooling.layers}")
@torch.no_grad()
def test_every_pooling_with_whitening(pooling, tmp_path):
    model = random_model("encoder", TINY.derive(num_hidden_layers=4))
    whitening = toy_whitening(pooling.width(24), 10)
    bundle = Bundle(model, None, 64, pooling=pooling, whitening=whitening)
    write_onnx(tmp_path / "onnx", bundle, source="a test")
    batch = mixed_batch()
    found = run(tmp_path / "onnx", padded(batch))["sentence_embedding"]
    right = whitening(pooling.vectors(model.encoder, batch.input_ids, batch.token_type_ids, batch.lengths))
    if pooling.normalize:
        right = F.normalize(right, dim=1)
    assert found.shape == (7, 10)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
    assert not (tmp_path / "onnx" / "tokenizer.json").exists()


@torch.no_grad()
def test_padding_changes_nothing(tmp_path):
    """One text alone, beside others, with any ids under the padding, and beside a row that is padding alone."""
    write_onnx(tmp_path / "onnx", Bundle(random_model("encoder"), None, 64), source="a test")
    inputs = padded(mixed_batch(lengths=(5,)))
    alone = run(tmp_path / "onnx", inputs)
    wide = {name: F.pad(grid, (0, 11, 0, 2)) for name, grid in inputs.items()}
    wide["input_ids"][:, 5:] = 96
    wide["token_type_ids"][:, 5:] = 1
    wide["attention_mask"][1, :9] = 1
    among = run(tmp_path / "onnx", wide)
    torch.testing.assert_close(among["sentence_embedding"][:1], alone["sentence_embedding"], rtol=0, atol=1e-5)
    torch.testing.assert_close(among["last_hidden_state"][:1, :5], alone["last_hidden_state"], rtol=0, atol=1e-5)
    assert among["sentence_embedding"].isfinite().all()


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu", "tanh"])
def test_every_activation_has_a_graph(activation, tmp_path):
    """The check inside is the judge."""
    model = random_model("encoder", TINY.derive(hidden_act=activation, num_hidden_layers=1))
    assert write_onnx(tmp_path / "onnx", Bundle(model, None, 64), source="a test").difference < 1e-5


def test_a_graph_that_differs_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    right = export.PaddedGraph._attend
    monkeypatch.setattr(export.PaddedGraph, "_attend", lambda self, layer, x, hidden: right(self, layer, x, 0 * hidden))
    with pytest.raises(BertsmithError, match=r"is not the model: last_hidden_state differs by .* nothing was written"):
        write_onnx(tmp_path / "onnx", Bundle(random_model("encoder"), None, 64), source="a test")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_no_numbers_are_an_error(tmp_path):
    model = random_model("encoder")
    torch.nn.init.constant_(model.encoder.layers[1].up.bias, float("nan"))
    with pytest.raises(BertsmithError, match="differs by nan"):
        write_onnx(tmp_path / "onnx", Bundle(model, None, 64), source="a test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("split", [False, True])
def test_int8_is_smaller_and_says_how_near_it_is(split, tmp_path):
    config = TINY.derive(hidden_size=128, intermediate_size=512, num_hidden_layers=2)
    bundle = Bundle(random_model("encoder", config), toy_tokenizer(), 64)
    limit = 1000 if split else 10**9
    plain = write_onnx(tmp_path / "plain", bundle, source="a test", max_file_bytes=limit)
    small = write_onnx(tmp_path / "int8", bundle, source="a test", int8=True, max_file_bytes=limit)
    assert plain.cosines == ()
    assert len(small.cosines) > 5
    assert 0.9 < min(small.cosines) <= max(small.cosines) < 0.999999
    sizes = {name: sum(p.stat().st_size for p in (tmp_path / name).glob("model.onnx*")) for name in ("plain", "int8")}
    assert sizes["int8"] < 0.4 * sizes["plain"]
    inputs = padded(mixed_batch(config))
    exact, near = (run(tmp_path / name, inputs)["sentence_embedding"] for name in ("plain", "int8"))
    assert F.cosine_similarity(exact, near).min() > 0.9
    assert "int8" in (tmp_path / "int8" / "README.md").read_text()
    assert "int8" not in (tmp_path / "plain" / "README.md").read_text()


def test_large_weights_stand_beside_the_graph(tmp_path):
    """As beyond 2 GB, with a limit that a small model passes; the folder can be moved."""
    bundle = Bundle(random_model("mlm"), None, 64)
    write_onnx(tmp_path / "one", bundle, source="a test")
    write_onnx(tmp_path / "two", bundle, source="a test", max_file_bytes=1000)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["README.md", "config.json", "model.onnx"]
    assert sorted(path.name for path in (tmp_path / "two").glob("model*")) == ["model.onnx", "model.onnx.data"]
    (tmp_path / "two").rename(tmp_path / "elsewhere")
    inputs = padded(mixed_batch())
    assert torch.equal(run(tmp_path / "one", inputs)["logits"], run(tmp_path / "elsewhere", inputs)["logits"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"both_orders": True}, "a pair in both orders"),
        ({"long": {"mode": "segments"}}, "a long text in segments"),
        ({"both_orders": False, "long": {"mode": "head"}}, None),
    ],
)
def test_cards_say_what_weights_alone_do_not_do(options, said, tmp_path):
    task = {"kind": "classify", "options": options}
    bundle = Bundle(random_model("classification"), None, 64, task)
    write_onnx(tmp_path / "onnx", bundle, source="a test")
    write_bundle(tmp_path / "plain", bundle, source="a test")
    for folder in ("onnx", "plain"):
        card = (tmp_path / folder / "README.md").read_text()
        found = re.findall(r"^Bertsmith reads (.*) and answers once; elsewhere each sequence has an answer", card, re.M)
        assert found == ([said] if said else [])


@pytest.mark.parametrize("kind", ["encoder", "tagging"])
def test_the_card_says_how_to_run_it_and_that_runs(kind, tmp_path, monkeypatch):
    write_onnx(tmp_path / "onnx", Bundle(random_model(kind), toy_tokenizer(), 64), source="a test")
    card = (tmp_path / "onnx" / "README.md").read_text()
    for name in (*export.INPUTS, *OUTPUTS[kind]):
        assert f"`{name}`" in card
    monkeypatch.chdir(tmp_path / "onnx")
    found = {}
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], found)
    assert found[list(OUTPUTS[kind])[-1]].shape[0] == 2


def test_what_does_not_fit_is_refused(tmp_path):
    model = random_model("encoder")
    for pooling, whitening, said in (
        (Pooling(pool="last4"), toy_whitening(24, 5), "whitening is of vectors of 24 numbers, the model's have 96"),
        (Pooling(layers=(4,)), None, "layers 0 to 3"),
    ):
        config = Bundle(random_model("encoder", TINY.derive(num_hidden_layers=4)), None, 64, pooling=pooling)
        bundle = Bundle(model if whitening is None else config.model, None, 64, pooling=pooling, whitening=whitening)
        with pytest.raises(InputError, match=said):
            write_onnx(tmp_path / "onnx", bundle, source="a test")
    with pytest.raises(InputError, match="exists already"):
        write_onnx(tmp_path, Bundle(model, None, 64), source="a test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_weights
def test_minilm_is_itself(real_folder, tmp_path):
    real_folder("minilm")
    bundle = load_bundle("minilm")
    write_onnx(tmp_path / "onnx", bundle, source="a test")
    ids = bundle.tokenizer.encode_ids(["A cat sleeps.", "", "Shares fell on Monday. " * 80], max_length=256)
    lengths = torch.tensor([len(sequence) for sequence in ids])
    with torch.no_grad():
        right = Pooling().vectors(bundle.model.encoder, PackedBatch.of(ids).input_ids, None, lengths)
    width = int(lengths.max())
    grid = torch.tensor([sequence + [0] * (width - len(sequence)) for sequence in ids])
    kept = (torch.arange(width) < lengths[:, None]).long()
    inputs = {"input_ids": grid, "attention_mask": kept, "token_type_ids": torch.zeros_like(grid)}
    found = run(tmp_path / "onnx", inputs)["sentence_embedding"]
    assert (found - right).abs().max() < 1e-4
