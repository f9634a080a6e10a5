"""Building: the same bytes however it is done, whatever interrupts it; and nothing is ever built over."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.data import building, writing
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.index import IN_PHRASE, PHRASE_START, SPLITS, WORD_START
from bertsmith.data.shards import ShardSet
from bertsmith.errors import BertsmithError, CorpusError, InputError, ShardError
from bertsmith.text import plain
from bertsmith.text.corpus import CorpusOptions
from bertsmith.text.documents import Document
from bertsmith.text.sentences import SentenceSplitter
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = ShardOptions(shard_mb=0.004, holdout=0.1)
NUM_KILLS = 4


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tokenizer: Tokenizer) -> Path:
    """The data set that every other way of building must come to."""
    folder = tmp_path_factory.mktemp("undisturbed") / "data"
    build_shards([str(corpus)], tokenizer, folder, options=SMALL, workers=1)
    return folder


def rebuild(corpus: Path, tokenizer: Tokenizer, folder: Path, /, **more: Any) -> building.Built:
    return build_shards([str(corpus)], tokenizer, folder, **{"options": SMALL, "workers": 1, **more})


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> None:
    """Let some units be written, and then fail."""
    num_written = 0

    def write(unit: writing.Unit) -> writing.UnitRecord:
        nonlocal num_written
        num_written += 1
        if num_written > after:
            raise error
        return writing.write_unit(unit)

    monkeypatch.setattr(building, "write_unit", write)


@pytest.mark.parametrize("workers", [2, 8])
def test_any_number_of_workers_gives_the_same_bytes(
    tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path, workers: int
) -> None:
    built = rebuild(corpus, tokenizer, tmp_path / "data", workers=workers)
    assert len(built.index.units) > 10
    assert content(tmp_path / "data") == content(undisturbed)


def test_no_build_leaves_anything_but_the_data_set(undisturbed: Path) -> None:
    index = ShardSet(undisturbed).index
    shards = {info.file_name(split) for split in SPLITS for info in index.shards(split)}
    assert set(content(undisturbed)) == {"index.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", *shards}
    assert not (undisturbed / ".building").exists()


def test_the_text_of_a_document_decides_its_split(
    undisturbed: Path, tokenizer: Tokenizer, documents: list[str]
) -> None:
    for split in SPLITS:
        expected = [
            tokenizer.encode_plain(SentenceSplitter().split(text))
            for text in documents
            if Document.of(text).held_out(SMALL.holdout) == (split == "holdout")
        ]
        shards = ShardSet(undisturbed, split)
        assert len(expected) > 10
        assert [[row.tolist() for row in shards.document(n)] for n in range(shards.num_documents)] == expected


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_interrupted_build_goes_on_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path, after: int
) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        interrupt(patch, after, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            rebuild(corpus, tokenizer, folder)
    assert not (folder / "index.json").exists()
    assert rebuild(corpus, tokenizer, folder).num_reused == after
    assert content(folder) == content(undisturbed)


def test_what_a_killed_build_left_half_written_is_removed_or_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path
) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        interrupt(patch, 4, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            rebuild(corpus, tokenizer, folder)
    for name in (".part-x", ".train-00004.bin.x", ".holdout-00004.bin.x", ".index.json.x"):
        (folder / name).write_bytes(b"half")
    (folder / "train-00009.bin").write_bytes(b"renamed, but not recorded")
    scratch = folder / ".building"
    for name in (".unit-00004.json.x", "document-x", "tmpx/whole.parquet"):
        (scratch / name).parent.mkdir(exist_ok=True)
        (scratch / name).write_bytes(b"half")
    for number, broken in enumerate((b"", b"[]", b'{"shards": []}', b'{"shards": {"train": 1}}')):
        (scratch / f"unit-{number:05d}.json").write_bytes(broken)
    assert rebuild(corpus, tokenizer, folder).num_reused == 0
    assert content(folder) == content(undisturbed)


def test_a_record_without_its_shard_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path
) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        interrupt(patch, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            rebuild(corpus, tokenizer, folder)
    (folder / "train-00001.bin").unlink()
    assert rebuild(corpus, tokenizer, folder).num_reused == 2
    assert content(folder) == content(undisturbed)


def test_the_same_build_again_finds_everything_there(corpus: Path, tokenizer: Tokenizer, undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.iterdir()}
    built = rebuild(corpus, tokenizer, undisturbed)
    assert built.num_reused == len(built.index.units)
    assert built.index == ShardSet(undisturbed).index
    assert {path: path.stat().st_mtime_ns for path in undisturbed.iterdir()} == before


def test_the_same_build_again_says_which_shard_is_damaged(
    tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(undisturbed, folder)
    path = folder / "train-00001.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ShardError, match=r"train-00001\.bin.*remove the data set"):
        rebuild(corpus, tokenizer, folder)
    path.unlink()
    with pytest.raises(ShardError, match=r"train-00001\.bin.*remove the data set"):
        rebuild(corpus, tokenizer, folder)


def test_a_build_that_bad_input_stopped_goes_on_when_told_to_skip_it(
    tmp_path: Path, corpus: Path, tokenizer: Tokenizer
) -> None:
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    source = tmp_path / "bad.jsonl"
    source.write_text("".join([*lines[:100], "{\n", *lines[100:]]), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"line 101.*--on-error skip"):
        rebuild(source, tokenizer, tmp_path / "data")
    skip = CorpusOptions(on_error="skip")
    assert rebuild(source, tokenizer, tmp_path / "data", corpus=skip).num_reused > 0
    rebuild(source, tokenizer, tmp_path / "fresh", corpus=skip)
    assert content(tmp_path / "data") == content(tmp_path / "fresh")


def other(tokenizer: Tokenizer, what: str) -> dict[str, Any]:
    """Arguments that make another data set, by the name of the setting that the refusal must give."""
    return {
        "tokenizer": {"tokenizer": Tokenizer.from_pieces([*tokenizer.pieces, "more"])},
        "shard_mb": {"options": ShardOptions(shard_mb=0.005, holdout=0.1)},
        "holdout": {"options": ShardOptions(shard_mb=0.004, holdout=0.2)},
        "words": {"options": ShardOptions(shard_mb=0.004, holdout=0.1, words="chinese")},
        "min_chars": {"corpus": CorpusOptions(min_chars=50)},
    }[what]


@pytest.mark.parametrize("what", ["tokenizer", "shard_mb", "holdout", "words", "min_chars"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "interrupted"])
def test_other_settings_are_refused_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, what: str, finished: bool
) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        if not finished:
            interrupt(patch, 3, InputError("stop"))
        try:
            rebuild(corpus, tokenizer, folder)
        except InputError:
            assert not finished
    before = content(folder)
    arguments = {"options": SMALL, "tokenizer": tokenizer, **other(tokenizer, what)}
    with pytest.raises(ShardError, match=rf"{folder}.*another {what};"):
        build_shards([str(corpus)], folder=folder, workers=1, **arguments)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("finished", "change"),
    [*((True, change) for change in ("first", "longer", "shorter", "order")), (False, "first"), (False, "order")],
)
def test_another_corpus_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corpus: Path,
    tokenizer: Tokenizer,
    finished: bool,
    change: str,
) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        if not finished:
            interrupt(patch, 6, InputError("stop"))
        try:
            rebuild(corpus, tokenizer, folder)
        except InputError:
            assert not finished
    before = content(folder)
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    changed = {
        "first": [lines[0].replace("document 0", "document 1"), *lines[1:]],
        "longer": [*lines, lines[0]],
        "shorter": lines[:30],
        "order": [lines[1], lines[0], *lines[2:]],
    }
    source = tmp_path / "changed.jsonl"
    source.write_text("".join(changed[change]), encoding="utf-8")
    with pytest.raises(ShardError, match=rf"{folder}.*another corpus"):
        rebuild(source, tokenizer, folder)
    if finished:
        assert content(folder) == before
    else:
        assert rebuild(corpus, tokenizer, folder).num_reused == 6  # what was there is still good


def test_a_corpus_cut_between_two_runs_leaves_no_shards_of_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 6, InputError("stop"))
        with pytest.raises(InputError, match="stop"):
            rebuild(corpus, tokenizer, tmp_path / "data")
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    size = num_lines = 0
    for line in lines:
        size += len(json.loads(line)["text"])
        num_lines += 1
        if size >= 1e6 * SMALL.shard_mb:
            break
    source = tmp_path / "cut.jsonl"
    source.write_text("".join(lines[:num_lines]), encoding="utf-8")
    rebuild(source, tokenizer, tmp_path / "data")
    rebuild(source, tokenizer, tmp_path / "fresh")
    assert content(tmp_path / "data") == content(tmp_path / "fresh")


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path, corpus: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ShardError, match=rf"{tmp_path}: is not empty and holds no data set"):
        rebuild(corpus, tokenizer, tmp_path)
    assert content(tmp_path) == {"thesis.txt": b"mine"}


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, corpus: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(ShardError, match="cannot be written to"):
        rebuild(corpus, tokenizer, tmp_path / "data")


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"\xff"])
def test_a_broken_note_of_the_settings_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, broken: bytes
) -> None:
    folder = tmp_path / "data"
    interrupt(monkeypatch, 1, InputError("stop"))
    with pytest.raises(InputError, match="stop"):
        rebuild(corpus, tokenizer, folder)
    (folder / ".building" / "settings.json").write_bytes(broken)
    with pytest.raises(ShardError, match=r"settings\.json"):
        rebuild(corpus, tokenizer, folder)


def test_two_builds_at_once_are_refused(tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path) -> None:
    refusals: list[str] = []

    def build_too(done: int, total: int) -> None:
        if not refusals:
            with pytest.raises(ShardError, match="another process is building there") as caught:
                rebuild(corpus, tokenizer, tmp_path / "data")
            refusals.append(str(caught.value))

    rebuild(corpus, tokenizer, tmp_path / "data", progress=build_too)
    assert refusals
    assert content(tmp_path / "data") == content(undisturbed)


def test_a_second_data_set_of_the_same_name_has_its_own_tokenizer(build: Callable[..., Any], tmp_path: Path) -> None:
    for last in ("it", "house"):
        tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, "the", last])
        folder, _ = build(["the house", "it"], tokenizer=tokenizer)
        assert [row.tolist() for row in ShardSet(folder).document(0)] == tokenizer.encode_plain(["the house"])
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.parametrize("num_good", [0, 3, 12])
def test_a_full_disk_is_named_and_leaves_nothing_half_valid(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corpus: Path,
    tokenizer: Tokenizer,
    undisturbed: Path,
    num_good: int,
) -> None:
    folder = tmp_path / "data"
    fsync, num_calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls > num_good:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr("bertsmith.folders.os.fsync", full)
        with pytest.raises(BertsmithError, match=rf"{folder}: the disk is full"):
            rebuild(corpus, tokenizer, folder)
    assert not (folder / "index.json").exists()
    assert not [name for name in content(folder) if name.startswith((".part", ".train", ".holdout", ".index"))]
    rebuild(corpus, tokenizer, folder)
    assert content(folder) == content(undisturbed)


@pytest.mark.parametrize("section", ["tokens", "units", "documents"])
def test_a_disk_that_fills_up_while_a_shard_grows_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Path, tokenizer: Tokenizer, undisturbed: Path, section: str
) -> None:
    put = writing._ShardWriter._put

    def full(self: writing._ShardWriter, name: str, values: Any) -> None:
        if name == section:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        put(self, name, values)

    with monkeypatch.context() as patch:
        patch.setattr(writing._ShardWriter, "_put", full)
        with pytest.raises(BertsmithError, match="the disk is full"):
            rebuild(corpus, tokenizer, tmp_path / "data")
    rebuild(corpus, tokenizer, tmp_path / "data")
    assert content(tmp_path / "data") == content(undisturbed)


def test_a_corpus_without_anything_to_learn_from_is_an_error(build: Callable[..., Any]) -> None:
    with pytest.raises(CorpusError, match="no document has a token"):
        build(["\u200b" * 20])


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused_before_anything_is_written(
    tmp_path: Path, corpus: Path, tokenizer: Tokenizer, workers: int
) -> None:
    with pytest.raises(InputError, match="--workers"):
        rebuild(corpus, tokenizer, tmp_path / "data", workers=workers)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("options", [{"holdout": 1.0}, {"holdout": -0.1}, {"shard_mb": 0}, {"dictionary": Path("x")}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--"):
        ShardOptions(**options)


def test_very_long_documents_give_the_same_with_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokenizer: Tokenizer, documents: list[str]
) -> None:
    long = ["\n".join(documents[start : start + 40]) for start in range(0, 240, 40)]
    source = tmp_path / "long.txt"
    source.write_text("\n\n".join([documents[0], *long[:3], documents[1], *long[3:], documents[2]]), encoding="utf-8")
    options = ShardOptions(shard_mb=0.01, holdout=0.3)
    whole = build_shards([str(source)], tokenizer, tmp_path / "whole", options=ShardOptions(holdout=0.0), workers=1)
    monkeypatch.setattr(plain, "SPOOL_SIZE", 3000)
    for workers in (1, 2):
        folder = tmp_path / f"workers-{workers}"
        build_shards([str(source)], tokenizer, folder, options=options, workers=workers)
        assert not (folder / ".building").exists()
    assert content(tmp_path / "workers-1") == content(tmp_path / "workers-2")
    together = ShardOptions(holdout=0.0)
    built = build_shards([str(source)], tokenizer, tmp_path / "spooled", options=together, workers=1)
    assert built.index.train == whole.index.train  # tokens do not tell that a document came in parts


def test_chinese_words_are_units(build: Callable[..., Any], tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = "我来到北京清华大学。"
    assert flags(build([text], name="pieces")[0]) == [WORD_START] * 10
    assert flags(build([text], name="words", words="chinese")[0]) == [1, 1, 0, 1, 0, 1, 0, 0, 0, 1]
    terms = tmp_path / "terms.txt"
    terms.write_text("我来到北京\n", encoding="utf-8")
    folder, _ = build([text], name="terms", words="chinese", dictionary=terms)
    assert flags(folder) == [1, 0, 0, 0, 0, 1, 0, 0, 0, 1]


def test_phrases_are_marked_as_units(build: Callable[..., Any], tmp_path: Path) -> None:
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("the house\nThe House of it\n北京\n", encoding="utf-8")
    folder, _ = build(["The house of it, the house", "the houses 北京 the\nhouse"], phrases=phrases, sentences="lines")
    first, goes_on, word = WORD_START | PHRASE_START, WORD_START | IN_PHRASE, WORD_START
    of_first = [first, goes_on, goes_on, goes_on, word, first, goes_on]
    of_second = [word, word, first, goes_on, word, word]
    assert flags(folder) == of_first + of_second


def flags(folder: Path) -> list[int]:
    units: list[int] = ShardSet(folder).shard(0).units.tolist()
    return units


# From here on: real processes.


@pytest.fixture(scope="module")
def command(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, documents: list[str], tokenizer: Tokenizer
) -> tuple[list[str], dict[str, bytes]]:
    """A build that takes long enough to be caught in the middle, and what it must come to; the folder comes last."""
    folder = tmp_path_factory.mktemp("command")
    tokenizer.save(folder, max_length=512)
    source = folder / "corpus.jsonl"
    lines = (json.dumps({"text": f"{text} {number}"}) for number in range(50) for text in documents)
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--shard-mb", "0.02", "--holdout", "0.1", "--workers", "2", "--tokenizer", str(folder)]
    expected = folder / "data"
    build_shards([str(source)], tokenizer, expected, options=ShardOptions(shard_mb=0.02, holdout=0.1), workers=1)
    assert len(ShardSet(expected).index.units) > 100
    return [sys.executable, "-m", "bertsmith", "shards", str(source), *options, "--output"], content(expected)


class Running:
    """A build in a process group of its own, of which nothing is left at the end."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*command, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):  # workers too, should they have outlived their parent
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def wait_for_shards(self, count: int) -> None:
        """Until so many units have their record; the build must still be at it."""
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            if len(list(self.folder.glob(".building/unit-*.json"))) >= count:
                return
            time.sleep(0.001)
        pytest.fail("the build was over before it could be caught")

    def workers(self) -> list[int]:
        """The worker processes under it."""
        return [pid for pid in descendants(self.process.pid) if b"spawn_main" in cmdline(pid)]

    def end(self) -> tuple[int, str]:
        """Exit code and what was said on stderr."""
        errors = self.process.communicate(timeout=30)[1]
        return self.process.returncode, errors


def descendants(pid: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # gone
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            yield int(stat.parent.name)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(pids: list[int], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while any(b"spawn_main" in cmdline(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def finish(command: list[str], folder: Path) -> None:
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_killed_builds_end_with_the_same_bytes_when_run_again(
    tmp_path: Path, command: tuple[list[str], dict[str, bytes]]
) -> None:
    rng = random.Random(3)
    for number in range(NUM_KILLS):
        folder = tmp_path / f"data-{number}"
        with Running(command[0], folder) as build:
            build.wait_for_shards(rng.randint(1, 12))
            workers = build.workers()
            time.sleep(rng.random() * 0.02)
            if number % 2:
                build.process.kill()  # the parent alone
            else:
                os.killpg(build.process.pid, signal.SIGKILL)
            assert gone(workers), "a worker outlived its parent"
        assert not (folder / "index.json").exists()
        finish(command[0], folder)
        assert content(folder) == command[1]


def test_a_killed_worker_is_an_error_that_says_so(tmp_path: Path, command: tuple[list[str], dict[str, bytes]]) -> None:
    with Running(command[0], tmp_path / "data") as build:
        build.wait_for_shards(2)
        os.kill(build.workers()[0], signal.SIGKILL)
        code, errors = build.end()
    assert code == 1
    assert "a worker process was killed" in errors
    assert "Traceback" not in errors
    finish(command[0], tmp_path / "data")
    assert content(tmp_path / "data") == command[1]


def test_ctrl_c_ends_everything_and_the_next_run_goes_on(
    tmp_path: Path, command: tuple[list[str], dict[str, bytes]]
) -> None:
    with Running(command[0], tmp_path / "data") as build:
        build.wait_for_shards(3)
        workers = build.workers()
        os.killpg(build.process.pid, signal.SIGINT)  # as a terminal does
        code, errors = build.end()
    assert code == 130
    assert "Traceback" not in errors
    assert len(workers) == 2
    assert gone(workers)
    finish(command[0], tmp_path / "data")
    assert content(tmp_path / "data") == command[1]


def test_a_build_that_fails_at_once_leaves_nothing_and_can_be_tried_with_other_settings(tmp_path, tokenizer):
    lines = [json.dumps({"body": f"a b c {number} a b c"}) for number in range(30)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(CorpusError, match="no field"):
        build_shards([str(tmp_path / "c.jsonl")], tokenizer, tmp_path / "data", workers=1)
    assert not (tmp_path / "data").exists()
    reading = CorpusOptions(field="body")
    build_shards([str(tmp_path / "c.jsonl")], tokenizer, tmp_path / "data", corpus=reading, workers=1)


def test_a_build_killed_before_its_first_unit_does_not_insist_on_its_settings(tmp_path, tokenizer):
    (tmp_path / "c.txt").write_text("a b c a b c a b c", encoding="utf-8")
    (tmp_path / "data" / ".building").mkdir(parents=True)
    (tmp_path / "data" / ".building" / "settings.json").write_text('{"field": "other"}', encoding="utf-8")
    (tmp_path / "data" / "vocab.txt").write_text("half", encoding="utf-8")
    built = build_shards([str(tmp_path / "c.txt")], tokenizer, tmp_path / "data", workers=1)
    assert built.index.count("train", "documents") == 1
