"""Folders for sentence-transformers: the real library opens them, gives our vectors, and would write the same files."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling

from bertsmith.bundle.embedding import read_pooling, read_published_pooling
from bertsmith.bundle.folder import Bundle, read_bundle, write_bundle
from bertsmith.bundle.sentence_transformers import write_sentence_transformers
from bertsmith.data.batches import PackedBatch
from bertsmith.errors import InputError, TokenizerError, WeightsError
from bertsmith.jobs.convert import convert
from bertsmith.model.pooling import Pooling, Whitening
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import random_model

TEXTS = ["words ! word", "!", "", "1 2 3 4 5 6 7 8 9 word words", "word " * 70]
FILES = ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "3_Normalize/config.json")


def toy_tokenizer():
    return Tokenizer.from_pieces([*SPECIAL_TOKENS, *(chr(number) for number in range(33, 65)), "word", "##s"])


def toy_bundle(kind="encoder", kept=None, **pooling):
    sample = torch.randn(200, 24, generator=torch.Generator().manual_seed(1)) * 2 + 1
    whitening = None if kept is None else Whitening.fit(sample, kept)
    how = Pooling(**pooling) if pooling else None
    return Bundle(random_model(kind), toy_tokenizer(), 40, pooling=how, whitening=whitening)


@torch.no_grad()
def vectors_of(bundle, texts=TEXTS):
    """Our vectors, made by hand from the packed encoder."""
    pooling = bundle.pooling or Pooling()
    batch = PackedBatch.of(bundle.tokenizer.encode_ids(texts, max_length=bundle.max_length))
    vectors = pooling.vectors(bundle.model.encoder, batch.input_ids, None, batch.lengths)
    vectors = vectors if bundle.whitening is None else bundle.whitening(vectors)
    return F.normalize(vectors, dim=1) if pooling.normalize else vectors


def opened(folder):
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def encoded(model, texts=TEXTS):
    return torch.from_numpy(model.encode(texts, show_progress_bar=False))


@pytest.mark.parametrize(
    ("kept", "pooling"),
    [
        (None, {}),
        (None, {"pool": "cls", "normalize": True}),
        (7, {"pool": "max"}),
        (24, {"pool": "mean", "normalize": True}),
        (None, {"pool": "mean", "layers": (3,)}),
    ],
)
def test_the_library_gives_our_vectors_and_we_read_the_folder_back(kept, pooling, tmp_path):
    bundle = toy_bundle(kept=kept, **pooling)
    write_sentence_transformers(tmp_path / "st", bundle, source="a test")
    theirs = opened(tmp_path / "st")
    assert theirs.max_seq_length == 40
    found = encoded(theirs)
    assert found.shape[1] == theirs.get_embedding_dimension() == (kept or 24)
    torch.testing.assert_close(found, vectors_of(bundle), rtol=1e-5, atol=1e-5)
    again = read_bundle(tmp_path / "st")
    assert again.pooling == (bundle.pooling or Pooling())
    assert again.max_length == 40
    assert (again.whitening is None) == (kept is None)
    assert torch.equal(vectors_of(again), vectors_of(bundle))


def test_the_library_would_write_the_same_files(tmp_path):
    write_sentence_transformers(tmp_path / "st", toy_bundle(kept=5, pool="mean", normalize=True), source="a test")
    opened(tmp_path / "st").save(str(tmp_path / "theirs"))
    for name in FILES:
        assert json.loads((tmp_path / "st" / name).read_text()) == json.loads((tmp_path / "theirs" / name).read_text())
    ours, theirs = (load_file(tmp_path / side / "2_Dense/model.safetensors") for side in ("st", "theirs"))
    assert {name: tensor.shape for name, tensor in ours.items()} == {name: t.shape for name, t in theirs.items()}
    for name in ("sentence_bert_config.json", "config_sentence_transformers.json"):
        mine, other = (json.loads((tmp_path / side / name).read_text()) for side in ("st", "theirs"))
        for content in (mine, other):
            content.pop("__version__", None)
            content.pop("max_seq_length", None)  # ours alone: they keep it in tokenizer_config.json
        assert mine == other


@pytest.mark.parametrize("kind", ["mlm", "pretraining", "pair"])
def test_of_a_pre_trained_model_the_encoder_is_written(kind, tmp_path):
    bundle = toy_bundle(kind)
    written = write_sentence_transformers(tmp_path / "st", bundle, source="a test")
    assert written.model.kind == read_bundle(tmp_path / "st").model.kind == "encoder"
    assert bundle.model.kind == kind
    assert not [name for name in load_file(tmp_path / "st/model.safetensors") if name.startswith("cls.")]
    torch.testing.assert_close(vectors_of(read_bundle(tmp_path / "st")), vectors_of(bundle), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ({"pool": "last4"}, "pooling last4; mean, cls, max of the last layer"),
        ({"pool": "first-last"}, "pooling first-last; mean, cls, max"),
        ({"pool": "mean", "layers": (1, 3)}, "of layers 1, 3; mean, cls, max"),
    ],
)
def test_pooling_that_their_modules_cannot_do_is_refused(pooling, said, tmp_path):
    with pytest.raises(InputError, match=said):
        write_sentence_transformers(tmp_path / "st", toy_bundle(**pooling), source="a test")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["classification", "choice", "tagging", "span"])
def test_a_model_that_makes_no_vectors_is_refused(kind, tmp_path):
    with pytest.raises(InputError, match=f"'{kind}' makes no sentence vectors"):
        write_sentence_transformers(tmp_path / "st", toy_bundle(kind), source="a test")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(TokenizerError, match="no tokenizer"):
        write_sentence_transformers(tmp_path / "st", Bundle(random_model("encoder"), None, 64), source="a test")


def their_folder(tmp_path, *modules):
    """A folder that sentence-transformers wrote itself, around one of our encoders."""
    write_bundle(tmp_path / "hf", toy_bundle(), source="a test")
    plain = opened(tmp_path / "hf")
    chain = SentenceTransformer(modules=[plain[0], *modules], device="cpu")
    chain.save(str(tmp_path / "theirs"))
    return chain, tmp_path / "theirs"


def affine(kept, activation=None):
    torch.manual_seed(3)
    return Dense(24, kept, activation_function=activation)


@pytest.mark.parametrize("pool", ["mean", "cls", "max"])
@pytest.mark.parametrize("dense", [False, True])
def test_what_the_library_wrote_is_used_unscaled_and_exported_scaled(pool, dense, tmp_path):
    chain, folder = their_folder(tmp_path, TheirPooling(24, pool), *([affine(6)] if dense else []), Normalize())
    bundle = read_bundle(folder)
    assert bundle.pooling == Pooling(pool=pool)
    assert read_published_pooling(folder) == Pooling(pool=pool, normalize=True)
    # They keep the longest input in tokenizer_config.json.
    right = encoded(chain, TEXTS[:4])
    torch.testing.assert_close(F.normalize(vectors_of(bundle, TEXTS[:4]), dim=1), right, rtol=1e-4, atol=1e-5)
    convert(str(folder), tmp_path / "again", to="sentence-transformers")
    torch.testing.assert_close(encoded(opened(tmp_path / "again"), TEXTS[:4]), right, rtol=1e-4, atol=1e-5)
    convert(str(folder), tmp_path / "hf2")
    assert read_pooling(tmp_path / "hf2") == Pooling(pool=pool, normalize=True)
    convert(str(tmp_path / "hf2"), tmp_path / "last", to="sentence-transformers")
    torch.testing.assert_close(encoded(opened(tmp_path / "last"), TEXTS[:4]), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ([TheirPooling(24, "mean"), affine(6, torch.nn.Tanh())], "more than a linear map"),
        ([TheirPooling(24, "mean"), Normalize(), affine(6)], "Transformer, Pooling, Normalize, Dense are not"),
        ([TheirPooling(24, "lasttoken")], "mean, cls and max are"),
        ([TheirPooling(24, ("mean", "max"))], "mean, cls and max are"),
    ],
)
def test_steps_that_we_do_not_know_are_refused_and_not_left_out(modules, said, tmp_path):
    _, folder = their_folder(tmp_path, *modules)
    for to in ("hf", "sentence-transformers", "onnx"):
        with pytest.raises(InputError, match=said):
            convert(str(folder), tmp_path / "new", to=to)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"type": "x.Transformer", "path": ""}, {"type": "x.Dense", "path": "../other"}]', "not a folder beside it"),
        ('[{"type": "x.Dense", "path": ".."}]', "not a folder beside it"),
        ('[{"type": "x.Dense", "path": 7}]', "not a folder beside it"),
        ('[{"type": "x.Dense"}]', "not a list of modules"),
        ('{"type": 1}', "not a list of modules"),
        ("[" * 100_000, "not a list of modules"),
        ('[{"type": "x.Dense", "path": "missing"}]', "not a file"),
    ],
)
def test_a_hostile_list_of_modules_is_refused(content, said, tmp_path):
    _, folder = their_folder(tmp_path, TheirPooling(24, "mean"))
    (folder / "modules.json").write_text(content)
    with pytest.raises(InputError, match=said):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"linear.weight": torch.ones(6)}, r"linear.weight \(6,\)"),
        ({"linear.weight": torch.ones(6, 24, dtype=torch.int64)}, "of type int64"),
        ({"linear.bias": torch.ones(6)}, "no tensor linear.weight"),
        ({"linear.weight": torch.ones(6, 24), "linear.bias": torch.ones(5)}, "does not fit"),
    ],
)
def test_a_broken_dense_is_refused(tensors, said, tmp_path):
    _, folder = their_folder(tmp_path, TheirPooling(24, "mean"), affine(6))
    save_file(tensors, folder / "2_Dense/model.safetensors")
    with pytest.raises(WeightsError, match=said):
        read_bundle(folder)


@pytest.mark.real_weights
def test_minilm_gives_the_vectors_of_its_package(real_folder, tmp_path):
    folder = real_folder("minilm")
    convert("minilm", tmp_path / "st", to="sentence-transformers")
    texts = ["A cat sleeps.", "", "Shares fell on Monday.", "Straße 今天 naïve", "a long text " * 200]
    assert (encoded(opened(tmp_path / "st"), texts) - encoded(opened(folder), texts)).abs().max() < 1e-4
    assert read_bundle(tmp_path / "st").pooling == Pooling(normalize=True)
    assert read_bundle(folder).pooling == Pooling()
