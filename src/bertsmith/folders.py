"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from bertsmith.errors import BertsmithError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = [
    "claimed",
    "flush",
    "naming_full_disks",
    "new_folder",
    "refuse_existing",
    "refuse_file",
    "refuse_odd_name",
    "refuse_same",
    "refuse_unwritable",
    "remove_unfinished",
    "write_named",
    "write_whole",
]


def refuse_existing(folder: Path) -> None:
    """Nothing is ever written over: long work may ask this before it begins."""
    if folder.exists():
        raise InputError(f"{folder}: exists already; name a new folder, or remove it first")


def refuse_file(folder: Path) -> None:
    """A run wants a folder, one inside of folders, and one that can be written to."""
    refuse_odd_name(str(folder))
    try:
        for path in (folder, *folder.parents):
            if path.exists() and not path.is_dir():
                raise InputError(f"{path}: is a file, so there can be no folder {folder}; name another")
            if path.is_symlink() and not path.exists():
                raise InputError(f"{path}: is a link that leads nowhere; remove it, or name another folder")
        refuse_unwritable(folder, next(path for path in (folder, *folder.absolute().parents) if path.exists()))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written there ({error.strerror}); name another place") from error


def refuse_odd_name(name: str) -> None:
    """Names from other systems may have bytes that are no text; records and logs could not hold them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!r}: is not a name in UTF-8; rename it") from None


def refuse_unwritable(path: Path, folder: Path) -> None:
    """Where nothing can be written into the folder that a path will be in, say so before any work is done."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"{path}: cannot be written there ({error.strerror}); name another place") from error


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make a folder that one process at a time may train in; the claim ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process trains in it; wait for its end, or name another") from None
        except OSError:  # a file system that knows no claims, as some over a network
            pass
        yield
    finally:
        os.close(handle)
        if not any(folder.iterdir()):  # nothing came of it
            folder.rmdir()


def refuse_same(name: str, output: Path) -> None:
    """What is read is never written over, by whatever name it is called; `-` is no file."""
    if name != "-" and output.exists() and Path(name).exists() and output.samefile(name):
        raise InputError(f"{output}: is the input itself and would be replaced; name another output")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its name when all went well, and is gone otherwise."""
    refuse_existing(folder)
    aside = _aside(folder)
    parent = aside.parent
    try:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            aside.mkdir()
        except OSError as error:
            raise InputError(f"{parent}: cannot be written to ({error.strerror})") from error
        with naming_full_disks(parent):
            yield aside
            readable = aside.stat().st_mode & 0o666  # some libraries keep what they write to its owner
            for path in aside.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    path.chmod(readable)
            for path in [*aside.iterdir(), aside]:
                flush(path)
            aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file aside, flush it, then rename: a reader sees the old file or the new one."""
    aside = _aside(path)
    try:
        with aside.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_named(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """The same for a name that a person gave: a link is followed; a device or a pipe is written to, not replaced."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            write(file)
    else:
        write_whole(path.resolve(), write)


def remove_unfinished(folder: Path, *names: str) -> None:
    """What a killed process left of files and folders of these names, which it was writing."""
    for path in [path for name in names for path in folder.glob(f".{name}.*")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Have the system put a file, or the names in a folder, on the disk now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming_full_disks(folder: Path) -> Iterator[None]:
    """Turn "no space left" into an error that says where."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not _is_full(error):
            if isinstance(error, SafetensorError):
                raise BertsmithError(f"{folder}: cannot be written ({error})") from error
            raise
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        raise BertsmithError(
            f"{folder}: the disk is full ({free / 2**20:,.0f} MiB free); make room and run the same command again (a "
            "run goes on with --resume)"
        ) from error


def _is_full(error: OSError | SafetensorError) -> bool:
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError):
        return error.errno in full
    return any(f"os error {number})" in str(error) for number in full)  # its only word on what the system said


def _aside(path: Path) -> Path:
    """A name beside, known before anything has it: a signal at any moment finds what is to be removed."""
    return path.absolute().with_name(f".{path.name}.{secrets.token_hex(4)}")
