"""BertConfig: what it reads, keeps, writes and refuses."""

from __future__ import annotations

import json

import pytest
import transformers

from bertsmith.config import SIZES, BertConfig, named_size
from bertsmith.errors import ConfigError, InputError
from bertsmith.model.heads import build


def test_known_sizes_have_the_published_parameter_counts():
    assert sum(named_size("base").parameter_counts().values()) == 109_482_240
    assert sum(named_size("large").parameter_counts().values()) == 335_141_888
    assert list(SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_arithmetic_agrees_with_the_model(size):
    config = named_size(size, vocab_size=1234, type_vocab_size=3)
    parts = config.parameter_counts()
    encoder = build(config).encoder
    assert sum(parts.values()) == sum(parameter.numel() for parameter in encoder.parameters())
    assert parts["embeddings"] == sum(parameter.numel() for parameter in encoder.embeddings.parameters())


def test_base_with_both_heads():
    """The whole pre-training model of the paper's base size."""
    import torch

    from bertsmith.model.heads import PreTrainingModel

    with torch.device("meta"):
        model = PreTrainingModel(named_size("base"))
    assert sum(parameter.numel() for parameter in model.parameters()) == 110_106_428


def test_unknown_keys_are_kept_and_written_back(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"hidden_size": 12, "num_attention_heads": 3, "nobody": {"knows": [1]}})
    )
    config = BertConfig.from_file(tmp_path / "config.json")
    written = json.loads(config.to_json())
    assert written["nobody"] == {"knows": [1]}
    assert written["hidden_size"] == 12
    assert config.derive(hidden_size=24).model_extra == {"nobody": {"knows": [1]}}


def test_transformers_reads_ours_and_we_read_theirs(tmp_path):
    ours = named_size("mini", vocab_size=77, id2label={0: "no", 1: "yes", 2: "perhaps"}, hidden_act="relu")
    (tmp_path / "config.json").write_text(ours.to_json())
    theirs = transformers.BertConfig.from_pretrained(tmp_path)
    for field in (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "hidden_act",
        "id2label",
        "num_labels",
        "layer_norm_eps",
    ):
        assert getattr(theirs, field) == getattr(ours, field)
    theirs.save_pretrained(tmp_path)
    again = BertConfig.from_file(tmp_path / "config.json")
    assert again.id2label == ours.id2label
    assert again.hidden_act == "relu"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"num_attention_heads": 7}, "num_attention_heads"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": "768"}, "hidden_size"),
        ({"hidden_size": 768.5}, "hidden_size"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"hidden_act": "magic"}, "hidden_act"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"model_type": "albert"}, "model_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"id2label": {0: "a", 2: "b"}}, "id2label"),
        ({"num_labels": 0}, "num_labels"),
        ({"num_labels": 3, "id2label": {0: "a"}}, "num_labels"),
    ],
)
def test_impossible_values_name_their_field(values, field):
    with pytest.raises(ConfigError, match=field) as caught:
        BertConfig(**values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"hidden_size": -3}', "\xff", "[" * 100_000])
def test_a_broken_file_is_named(content, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=str(path)):
        BertConfig.from_file(path)


def test_an_unknown_size_lists_the_known_ones():
    with pytest.raises(ConfigError, match="tiny, mini, small, medium, base, large"):
        named_size("huge")


def test_labels_come_by_their_numbers_however_a_file_has_them(tmp_path):
    """As JSON with sorted keys has more than ten: "10" stands before "2"."""
    names = {number: f"label {number}" for number in range(12)}
    shuffled = {str(number): names[number] for number in sorted(names, key=str)}
    config = named_size("tiny", id2label=shuffled)
    assert list(config.id2label.values()) == list(names.values())
    assert list(BertConfig(**json.loads(config.to_json())).id2label.items()) == list(names.items())
