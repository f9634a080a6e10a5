"""Weight files that mean harm: nothing in them is run, and nothing is allocated that they do not hold."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile

import pytest
import torch

from bertsmith.bundle.folder import read_bundle
from bertsmith.errors import WeightsError
from twins import TINY


class Exploit:
    """Unpickled carelessly, this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_hostile_pickle_is_not_run(tmp_path):
    (tmp_path / "config.json").write_text(TINY.to_json())
    torch.save({"x": Exploit(tmp_path / "pwned")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError):
        read_bundle(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(tmp_path / "pwned"), protocol=2))
    with pytest.raises(WeightsError):
        read_bundle(tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_a_small_file_cannot_claim_a_large_tensor(tmp_path):
    """A safetensors header, an expanded tensor and a patched pickle, each asking for far more than there is."""
    huge = TINY.derive(vocab_size=2**24, hidden_size=2**14, num_attention_heads=1)
    (tmp_path / "config.json").write_text(huge.to_json())
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**24, 2**14], "data_offsets": [0, 2**40]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    with pytest.raises(WeightsError, match="not a whole safetensors file"):
        read_bundle(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    file = tmp_path / "pytorch_model.bin"
    torch.save({"word": torch.zeros(1).expand(2**24, 2**14)}, file)
    with pytest.raises(WeightsError, match="claims"):
        read_bundle(tmp_path)
    torch.save({"word": torch.zeros(3_000_000)}, file, _use_new_zipfile_serialization=False)
    data = file.read_bytes()
    file.write_bytes(data.replace(struct.pack("<I", 3_000_000), struct.pack("<I", 2_000_000_000))[:5000])
    with pytest.raises(WeightsError, match="claims 8000000000 bytes"):
        read_bundle(tmp_path)


class Allocation:
    """Unpickled by a loader that trusts numbers, this would take a terabyte."""

    def __reduce__(self):
        return torch.FloatTensor, (10**6, 10**6)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_may_name_nothing_but_tensors(zipped, tmp_path):
    (tmp_path / "config.json").write_text(TINY.to_json())
    torch.save({"x": Allocation()}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(WeightsError, match="which no file of weights needs"):
        read_bundle(tmp_path)


def test_many_tensors_may_not_share_one_small_storage(tmp_path):
    (tmp_path / "config.json").write_text(TINY.to_json())
    shared = torch.zeros(1000, 100)
    torch.save({f"layer{number}": shared[:] for number in range(40)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="more than the file holds"):
        read_bundle(tmp_path)


def test_a_compressed_zip_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(TINY.to_json())
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**6)
    with pytest.raises(WeightsError, match="compressed"):
        read_bundle(tmp_path)
