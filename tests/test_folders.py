"""Files and folders that appear whole, and what is said where they cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import SafetensorError

from bertsmith.errors import BertsmithError
from bertsmith.folders import naming_full_disks, new_folder, remove_unfinished, write_named, write_whole

TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from bertsmith.folders import new_folder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
with new_folder(Path(sys.argv[1])) as aside:
    save_file({"a": torch.zeros(10**6)}, aside / "model.safetensors")
"""


@pytest.mark.parametrize(
    ("number", "words"), [(28, "the disk is full"), (122, "the disk is full"), (5, "cannot be written")]
)
def test_what_safetensors_says_of_the_disk_is_understood(number, words, tmp_path):
    with pytest.raises(BertsmithError, match=f"{tmp_path}: {words}"), naming_full_disks(tmp_path):
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")


def test_weights_that_cannot_be_written_are_an_error_of_ours_and_leave_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, tmp_path / "model"], capture_output=True, text=True, check=False
    )
    assert f"bertsmith.errors.BertsmithError: {tmp_path}: cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def _write(path):
    write_whole(path, lambda file: file.write(b"whole"))


def _make(path):
    with new_folder(path) as aside:
        (aside / "part").touch()


@pytest.mark.parametrize(("act", "made_by"), [(_write, "open"), (_make, "mkdir")])
def test_a_signal_in_the_moment_of_making_it_leaves_nothing(act, made_by, tmp_path, monkeypatch):
    make = getattr(Path, made_by)

    def interrupted(path, *args, **kwargs):
        made = make(path, *args, **kwargs)
        if path.name.startswith(".said."):
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(Path, made_by, interrupted)
    with pytest.raises(KeyboardInterrupt):
        act(tmp_path / "said")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    act(tmp_path / "said")
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_only_what_was_being_written_is_removed(tmp_path):
    for name in (".config.json.ab12", ".config.json", ".other", "config.json"):
        (tmp_path / name).touch()
    (tmp_path / ".model.x9").mkdir()
    (tmp_path / ".model.x9" / "weights").touch()
    remove_unfinished(tmp_path, "config.json", "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.json", ".other", "config.json"]


def test_a_name_that_a_person_gave_stays_what_it_is(tmp_path):
    """A link leads to its file, a pipe stays a pipe: /dev/null must not become a file."""
    (tmp_path / "elsewhere").mkdir()
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    for content in (b"first", b"second"):
        write_named(link, lambda file, content=content: file.write(content))
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_bytes() == b"second"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        write_named(pipe, lambda file: file.write(b"whole"))
        assert read.result(10) == b"whole"
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "file", "link", "pipe"]


def test_others_can_read_what_a_library_kept_to_its_owner(tmp_path):
    """And go into folders inside."""
    old = os.umask(0o027)
    try:
        with new_folder(tmp_path / "new") as aside:
            (aside / "inner").mkdir()
            for path in (aside / "a", aside / "inner" / "b"):
                path.touch(mode=0o600)
    finally:
        os.umask(old)
    assert [(tmp_path / "new" / name).stat().st_mode & 0o777 for name in ("", "inner", "a", "inner/b")] == [
        0o750, 0o750, 0o640, 0o640,
    ]  # fmt: skip
