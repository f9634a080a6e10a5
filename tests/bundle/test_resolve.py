"""From a name to a model: folders, run folders, the hub's cache, and what is said offline."""

from __future__ import annotations

import sys

import pytest

from bertsmith.bundle.catalogue import local_models
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.bundle.resolve import find_model
from bertsmith.errors import ModelNotFoundError
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import random_model


@pytest.fixture
def write(tmp_path):
    def make(folder):
        bundle = Bundle(random_model("encoder"), Tokenizer.from_pieces([*SPECIAL_TOKENS, "a"]), 64)
        write_bundle(tmp_path / folder, bundle, source="a test")
        return tmp_path / folder

    return make


def test_a_folder_and_a_run_folder(write):
    assert find_model(str(write("plain")))[0].name == "plain"
    model = write("run/model")
    assert find_model(str(model.parent))[0] == model


def test_the_hub_cache_is_found_by_name(write, tmp_path, monkeypatch):
    folder = write("cache/models--someone--small-bert/snapshots/0123456789abcdef")
    (tmp_path / "cache/models--someone--other/snapshots/0").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert "someone/small-bert" in {model.name for model in local_models()}
    assert find_model("someone/small-bert")[0] == folder


@pytest.mark.parametrize("name", ["no/such/folder/anywhere", "../up", "a b", "", "x/../y", "-rf"])
def test_what_cannot_be_a_name_is_not_looked_up(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError):
        find_model(name)


def test_an_empty_folder_is_not_looked_up_on_the_hub(tmp_path):
    with pytest.raises(ModelNotFoundError, match="no model here"):
        find_model(str(tmp_path))


def test_offline_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="offline, copy the model's folder here") as caught:
        find_model("someone/unheard-of")
    assert "\n" not in str(caught.value)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match=r"pip install 'bertsmith\[hub\]'"):
        find_model("someone/unheard-of")
