"""Model folders: what we write others open, what others write we open, and what is broken is refused."""

from __future__ import annotations

import json
from collections import OrderedDict

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertsmith.bundle.fitting import tensors_of
from bertsmith.bundle.folder import Bundle, read_bundle, write_bundle
from bertsmith.bundle.names import ARCHITECTURES
from bertsmith.config import BertConfig
from bertsmith.errors import BertsmithError, InputError, ModelNotFoundError, WeightsError
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from bundle.google_writer import plain_bert, write_checkpoint
from twins import TINY, mixed_batch, padded, random_model, relative_error, unpadded

KINDS = sorted(ARCHITECTURES)


def toy_tokenizer():
    return Tokenizer.from_pieces([*SPECIAL_TOKENS, *(chr(number) for number in range(33, 65)), "word", "##s"])


@pytest.fixture
def saved(tmp_path):
    """A function that writes a random model of a kind and gives the model and its folder."""

    def save(kind, **options):
        model = random_model(kind)
        folder = tmp_path / kind
        write_bundle(folder, Bundle(model, toy_tokenizer(), 64), source="a test", **options)
        return model, folder

    return save


def rows_of(kind, output, batch):
    """The first output of a `transformers` model as our packed logits."""
    if kind == "span":
        return unpadded(torch.stack((output.start_logits, output.end_logits), -1), batch)
    first = output[0]
    return unpadded(first, batch) if first.ndim == 3 else first


def run_ours(kind, model, batch):
    inputs = (batch.input_ids, batch.token_type_ids, batch.lengths)
    everything = torch.arange(len(batch.input_ids))
    if kind == "encoder":
        return model.encoder(*inputs).rows
    if kind == "pretraining":
        return model(*inputs, everything).mlm
    if kind == "mlm":
        return model(*inputs, everything)
    return model(*inputs, 3) if kind == "choice" else model(*inputs)


def run_theirs(kind, model, batch):
    inputs = padded(batch)
    if kind == "choice":
        inputs = {name: grid.view(-1, 3, grid.shape[-1]) for name, grid in inputs.items()}
    return rows_of(kind, model(**inputs), batch)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_transformers_opens_what_we_write(kind, saved):
    model, folder = saved(kind)
    theirs, info = getattr(transformers, ARCHITECTURES[kind]).from_pretrained(folder, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[problem], problem
    batch = mixed_batch(lengths=(7, 5, 33, 7, 64, 2))
    assert relative_error(run_ours(kind, model, batch), run_theirs(kind, theirs.eval(), batch)) < 1e-6
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("words ! word")["input_ids"] == toy_tokenizer().encode("words ! word").ids


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_we_open_what_transformers_writes(kind, tmp_path):
    config = transformers.BertConfig(**json.loads(TINY.to_json()))
    if kind == "span":
        config.num_labels = 2
    torch.manual_seed(1)
    theirs = getattr(transformers, ARCHITECTURES[kind])(config).eval()
    theirs.save_pretrained(tmp_path)
    model = read_bundle(tmp_path).model
    assert model.kind == kind
    batch = mixed_batch(lengths=(7, 5, 33, 7, 64, 2))
    assert relative_error(run_ours(kind, model, batch), run_theirs(kind, theirs, batch)) < 1e-6


def test_our_own_folder_comes_back_bit_for_bit(saved):
    model, folder = saved("pretraining")
    again = read_bundle(folder)
    for (name, mine), (other_name, other) in zip(
        model.state_dict().items(), again.model.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(mine, other)
    assert again.tokenizer.fingerprint == toy_tokenizer().fingerprint
    assert again.max_length == 64
    assert "BertForPreTraining" in (folder / "README.md").read_text()


def test_a_shorter_input_length_survives(tmp_path):
    write_bundle(tmp_path / "m", Bundle(random_model("encoder"), toy_tokenizer(), 32), source="a test")
    assert read_bundle(tmp_path / "m").max_length == 32


def old_spellings(tensors):
    """As files of 2018 and 2019 have it: gamma and beta, no prefix, a stored position buffer."""
    renamed = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        renamed[name.removeprefix("bert.")] = tensor.contiguous()
    renamed["embeddings.position_ids"] = torch.arange(64)[None]
    return renamed


@pytest.mark.parametrize("zipped", [True, False])
def test_old_spellings_and_bin_files(zipped, tmp_path):
    model = random_model("mlm")
    tensors = old_spellings(tensors_of(model))
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    tensors = OrderedDict(tensors)
    tensors._metadata = OrderedDict(version=1)  # what torch's own state dicts carry along
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (tmp_path / "config.json").write_text(TINY.to_json())
    again = read_bundle(tmp_path).model
    assert again.kind == "mlm"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_other_float_types_become_float32(saved):
    model, folder = saved("encoder")
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    weight = read_bundle(folder).model.encoder.layers[0].up.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, model.encoder.layers[0].up.weight.to(torch.bfloat16).float())


def test_sharded_weights_in_and_out(saved):
    model, folder = saved("encoder", max_shard_bytes=8000)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 3
    again = read_bundle(folder).model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    _, info = transformers.BertModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]


@pytest.mark.parametrize(
    "target", ["../outside.safetensors", "/etc/passwd", "sub/x.bin", "..", 7, "a\0.bin", "model.txt"]
)
def test_an_index_that_points_outside_is_refused(target, saved):
    _, folder = saved("encoder", max_shard_bytes=8000)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["embeddings.LayerNorm.bias"] = target
    index.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match="not a weight file in the same folder"):
        read_bundle(folder)


def test_index_and_shards_must_agree(saved):
    _, folder = saved("encoder", max_shard_bytes=8000)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["invented"] = content["weight_map"]["pooler.dense.bias"]
    index.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match="invented"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("bert.encoder.layer.1.output.dense.bias"), "no tensor bert.encoder.layer.1.output.dense.bias"),
        (lambda t: t.update(extra=torch.ones(2)), "no place for extra"),
        (lambda t: t.update({"bert.encoder.layer.3.output.dense.bias": torch.ones(24)}), "no place for"),
        (
            lambda t: t.update({"bert.pooler.dense.bias": torch.ones(23)}),
            r"is \(23,\), the configuration asks for \(24,\)",
        ),
        (lambda t: t.update({"classifier.bias": torch.ones(3, dtype=torch.int64)}), "of type int64"),
        (lambda t: t.update({"pooler.dense.bias": torch.ones(24)}), "are the same tensor"),
    ],
)
def test_missing_extra_and_misshapen_tensors_are_named(change, said, saved):
    _, folder = saved("classification")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=said):
        read_bundle(folder)


def test_extra_tensors_can_be_dropped_by_name(saved):
    _, folder = saved("mlm")
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.species.weight"] = torch.ones(2, 24)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"cls\.species"):
        read_bundle(folder)
    assert read_bundle(folder, drop=["cls.species."]).model.kind == "mlm"


def test_a_head_that_is_not_there_is_refused_or_made_new(saved):
    model, folder = saved("mlm")
    with pytest.raises(WeightsError, match=r"classifier\.(weight|bias)|pooler"):
        read_bundle(folder, "classification")
    fresh = read_bundle(folder, "classification", fresh_head=True, seed=3, num_labels=5).model
    assert fresh.classifier.weight.shape == (5, 24)
    assert 0 < fresh.classifier.weight.abs().max() <= 0.04
    assert torch.equal(fresh.encoder.embeddings.word.weight, model.encoder.embeddings.word.weight)
    again = read_bundle(folder, "classification", fresh_head=True, seed=3, num_labels=5).model
    assert torch.equal(fresh.classifier.weight, again.classifier.weight)


def test_a_fresh_pretraining_head_on_an_encoder(saved):
    """A masked-word head holds a bias of its own beside whole layers; all of it is initialised."""
    model, folder = saved("encoder")
    fresh = read_bundle(folder, "pretraining", fresh_head=True).model
    assert torch.equal(fresh.encoder.pooler.weight, model.encoder.pooler.weight)
    assert (fresh.mlm.bias == 0).all()
    assert (fresh.mlm.norm.weight == 1).all()
    for parameter in (fresh.mlm.dense.weight, fresh.pair.weight):
        assert 0 < parameter.abs().max() <= 0.04
    assert not any(parameter.is_meta for parameter in fresh.parameters())


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "legacy.bin"])
def test_truncated_files_and_wrong_magic_are_one_clear_error(name, saved, tmp_path):
    model, folder = saved("encoder")
    file = folder / "model.safetensors"
    if name != "model.safetensors":
        file.unlink()
        file = folder / "pytorch_model.bin"
        torch.save(tensors_of(model), file, _use_new_zipfile_serialization=name != "legacy.bin")
    whole = file.read_bytes()
    assert read_bundle(folder).model.kind == "encoder"
    for size in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 60), len(whole) - 1]:
        file.write_bytes(whole[:size])
        with pytest.raises(WeightsError, match=str(file)):
            read_bundle(folder)
    file.write_bytes(b"MZ" + whole[2:])
    with pytest.raises(WeightsError, match=str(file)):
        read_bundle(folder)


def test_google_layout_beside_a_foreign_config(tmp_path):
    """A `config.json` without weights does not hide a checkpoint."""
    arrays = plain_bert()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "bert_config.json").write_text(google_config(arrays).model_dump_json())
    write_checkpoint(tmp_path / "bert_model.ckpt", arrays)
    assert read_bundle(tmp_path).model.kind == "pretraining"


def test_an_untied_decoder_is_refused(saved):
    _, folder = saved("mlm")
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = torch.ones(96, 24)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match="tied"):
        read_bundle(folder)
    (folder / "config.json").write_text(
        TINY.to_json().replace('"tie_word_embeddings": true', '"tie_word_embeddings": false')
    )
    with pytest.raises(InputError, match="tie_word_embeddings"):
        read_bundle(folder)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    bundle = Bundle(random_model("encoder"), toy_tokenizer(), 64)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists already"):
        write_bundle(tmp_path / "there", bundle, source="a test")

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tokenizer, "save", broken)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / "new", bundle, source="a test")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_folder_without_a_model_says_what_it_expected(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        read_bundle(tmp_path)


def test_a_tokenizer_larger_than_the_model_is_refused(saved):
    _, folder = saved("encoder")
    pieces = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(100))]
    Tokenizer.from_pieces(pieces).save(folder, max_length=64)
    with pytest.raises(BertsmithError, match="do not belong together"):
        read_bundle(folder)


def test_google_checkpoint_converts(tmp_path):
    """A plain BERT in Google's format gives the same numbers as the tensors it was written from."""
    source = tmp_path / "google"
    source.mkdir()
    arrays = plain_bert()
    config = google_config(arrays)
    (source / "bert_config.json").write_text(config.model_dump_json())
    write_checkpoint(source / "bert_model.ckpt", arrays)
    pieces = [*SPECIAL_TOKENS, *(f"W{number}" for number in range(config.vocab_size - 5))]
    (source / "vocab.txt").write_text("\n".join(pieces) + "\n")
    bundle = read_bundle(source)
    assert bundle.model.kind == "pretraining"
    assert not bundle.tokenizer.lowercase  # capitals in the vocabulary
    assert open_tokenizer(str(source)).fingerprint == bundle.tokenizer.fingerprint  # so that shards fit the model
    query = arrays["bert/encoder/layer_0/attention/self/query/kernel"]
    weight = bundle.model.encoder.layers[0].attention.qkv.weight[: config.hidden_size]
    assert torch.equal(weight, torch.from_numpy(query.T.copy()))
    write_bundle(tmp_path / "hf", bundle, source="a test")
    _, info = transformers.BertForPreTraining.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def google_config(arrays):
    vocab, width = arrays["bert/embeddings/word_embeddings"].shape
    layers = len({name.split("/")[2] for name in arrays if "/layer_" in name})
    return BertConfig(
        vocab_size=vocab,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=arrays["bert/encoder/layer_0/intermediate/dense/kernel"].shape[1],
        max_position_embeddings=arrays["bert/embeddings/position_embeddings"].shape[0],
    )
