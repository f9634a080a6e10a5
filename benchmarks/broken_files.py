"""Broken inputs for `bertsmith shards`, from a seed: each a folder of files, with what must come of it.

Every case has sound documents beside the broken ones. `good` are the documents that a build with `--on-error skip`
must end with; where it is None there is nothing to go on with, and both builds must be refused.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import parquet

from causes import Causes

if TYPE_CHECKING:
    import random
    from pathlib import Path

__all__ = ["CAUSES", "WORDS", "Case", "make_case"]

WORDS = ["the", "river", "stone", "light", "winter", "garden", "letter", "window", "music", "paper", "bread", "horse"]
LINE = r", line \d+"
ROW = r", row \d+"
FILE = r"(, after document \d+)?: "  # the whole file, or what comes after a place in it
OVER_LIMIT = 64 * 2**20 + 1
NOBODY = 65534


@dataclass(frozen=True)
class Case:
    """What stands on the command line, and what must come of it."""

    names: list[str]
    blamed: str  # the file that a message must name
    place: str = FILE  # the pattern of the place in it, right behind the name
    good: list[str] | None = None
    stops: bool = True  # with --on-error stop; if not, it is only counted
    counted: str = r"\d skipped: "  # the pattern of the count in the output
    options: list[str] = field(default_factory=list)
    stdin: bytes | None = None
    unprivileged: bool = False


CAUSES: Causes[Case] = Causes()
cause, make_case = CAUSES.register, CAUSES.make


# Sound parts


def sentence(rng: random.Random) -> str:
    """Words and a full stop."""
    return " ".join(rng.choices(WORDS, k=rng.randint(5, 12))).capitalize() + "."


def documents(rng: random.Random, count: int) -> list[str]:
    """Documents of one to four lines."""
    return ["\n".join(sentence(rng) for _ in range(rng.randint(1, 4))) for _ in range(count)]


def text_file(texts: list[str]) -> bytes:
    """Divided by blank lines."""
    return "\n\n".join(texts).encode() + b"\n"


def json_file(texts: list[str]) -> bytes:
    """One object a line."""
    return b"".join(json.dumps({"id": number, "text": text}).encode() + b"\n" for number, text in enumerate(texts))


def parquet_file(texts: Any, column: str = "text") -> bytes:
    """With checksums, so that a flipped bit can be told."""
    out = io.BytesIO()
    table = pyarrow.table({"id": range(len(texts)), column: texts})
    parquet.write_table(table, out, write_page_checksum=True, compression="none")
    return out.getvalue()


def gz(data: bytes) -> bytes:
    """As `gzip` packs, without the time of day."""
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    """As `zstd` packs."""
    packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
    return packed


def some_file(rng: random.Random, suffixes: tuple[str, ...] = ("txt", "jsonl", "parquet", "md")) -> tuple[str, bytes]:
    """A suffix, and a sound file of that kind."""
    suffix = rng.choice(suffixes)
    texts = documents(rng, rng.randint(3, 40))
    return suffix, {"txt": text_file, "jsonl": json_file, "parquet": parquet_file, "md": text_file}[suffix](texts)


def with_sound(folder: Path, rng: random.Random, name: str, data: bytes, **case: Any) -> Case:
    """A broken file of which nothing can be used, before or behind a sound one."""
    good = documents(rng, rng.randint(2, 9))
    path = folder / name
    path.write_bytes(data)
    (folder / rng.choice(["a.txt", "z.txt"])).write_bytes(text_file(good))
    return Case([str(folder)], str(path), **{"good": good, **case})


def among_sound(
    folder: Path, rng: random.Random, bad: bytes, place: str = LINE, kind: str = "txt", **case: Any
) -> Case:
    """One broken document in the middle of a file of sound ones, plain or compressed."""
    before, after = documents(rng, rng.randint(0, 30)), documents(rng, rng.randint(1, 30))
    suffix, pack = rng.choice([("", bytes), (".gz", gz), (".zst", zstd)])
    path = folder / f"broken.{kind}{suffix}"
    if kind == "txt":
        data = b"\n\n".join([*(text.encode() for text in before), bad, *(text.encode() for text in after)])
    else:
        data = json_file(before) + bad + b"\n" + json_file(after)
    path.write_bytes(pack(data))
    return Case([str(path)], str(path), place, good=before + after, **case)


def flipped(rng: random.Random, data: bytes, start: int, stop: int) -> bytes:
    """One bit turned over, somewhere between the two."""
    changed = bytearray(data)
    changed[rng.randrange(start, stop)] ^= 1 << rng.randrange(8)
    return bytes(changed)


# Encodings


@cause("Latin-1 text")
def _(folder: Path, rng: random.Random) -> Case:
    return among_sound(folder, rng, f"{sentence(rng)} Café {sentence(rng)}".encode(rng.choice(["latin-1", "cp1252"])))


@cause("Chinese or Japanese in an old encoding")
def _(folder: Path, rng: random.Random) -> Case:
    encoding = rng.choice(["gb18030", "big5", "shift-jis", "euc-jp"])
    return among_sound(folder, rng, f"{sentence(rng)} 中文。".encode(encoding))


@cause("UTF-16 or UTF-32 with a mark")
def _(folder: Path, rng: random.Random) -> Case:
    data = text_file(documents(rng, 3)).decode().encode(rng.choice(["utf-16", "utf-32"]))
    return with_sound(folder, rng, rng.choice(["b.txt", "b.md"]), data, place=LINE)


@cause("UTF-16 without a mark")
def _(folder: Path, rng: random.Random) -> Case:
    data = sentence(rng).encode(rng.choice(["utf-16-le", "utf-16-be"]))
    return with_sound(folder, rng, rng.choice(["b.txt", "b.md"]), data, place=LINE)


@cause("a flipped bit in text")
def _(folder: Path, rng: random.Random) -> Case:
    bad = bytearray(documents(rng, 1)[0].encode())
    bad[rng.randrange(len(bad))] |= 0x80  # alone among ASCII it is never UTF-8
    return among_sound(folder, rng, bytes(bad))


@cause("a character cut at the end of a file")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, rng.randint(1, 20))
    path = folder / "cut.txt"
    path.write_bytes(text_file([*good, sentence(rng)]).rstrip() + "😀".encode()[: rng.randint(1, 3)])
    return Case([str(path)], str(path), LINE, good=good)


@cause("surrogates or overlong forms in UTF-8")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf5\x80\x80\x80"])
    return among_sound(folder, rng, sentence(rng).encode() + bad + sentence(rng).encode())


@cause("a NUL byte in text")
def _(folder: Path, rng: random.Random) -> Case:
    return among_sound(folder, rng, sentence(rng).replace(" ", "\0" * rng.randint(1, 9), 1).encode())


@cause("a Markdown file that is not UTF-8 or has a NUL")
def _(folder: Path, rng: random.Random) -> Case:
    data = b"# Title\n\n" + sentence(rng).encode() + rng.choice([b"\xff", b"\0", b"\xe9 "])
    return with_sound(folder, rng, "b.md", data, place=", line 3")


# Compression


@cause("a gzip file that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    packed = gz(data)
    return with_sound(folder, rng, f"b.{suffix}.gz", packed[: rng.randrange(1, len(packed))])


@cause("a gzip file with a flipped bit")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    packed = gz(data)
    return with_sound(folder, rng, f"b.{suffix}.gz", flipped(rng, packed, 10, len(packed)))


@cause("a gzip file with garbage behind it")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    return with_sound(folder, rng, f"b.{suffix}.gz", gz(data) + b"garbage" + rng.randbytes(9))


@cause("a zstd file that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    packed = zstd(data)
    return with_sound(folder, rng, f"b.{suffix}.zst", packed[: rng.randrange(1, len(packed))])


@cause("a zstd file with garbage behind it")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    return with_sound(folder, rng, f"b.{suffix}.zst", zstd(data) + b"garbage" + rng.randbytes(9))


@cause("a plain file that is named as compressed")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    return with_sound(folder, rng, f"b.{suffix}.{rng.choice(['gz', 'zst'])}", data)


@cause("one compression under the other's name")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng)
    wrong, pack = rng.choice([("zst", gz), ("gz", zstd)])
    return with_sound(folder, rng, f"b.{suffix}.{wrong}", pack(data))


@cause("a compressed file whose name does not say so")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng, ("txt", "jsonl", "md"))
    return with_sound(folder, rng, f"b.{suffix}", rng.choice([gz, zstd])(data))


@cause("random bytes")
def _(folder: Path, rng: random.Random) -> Case:
    suffix = rng.choice(["txt.gz", "txt.zst", "parquet", "jsonl.gz", "md.zst"])
    return with_sound(folder, rng, f"b.{suffix}", rng.randbytes(rng.randint(1, 5000)))


# JSON lines


@cause("a JSON line that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    line = json_file(documents(rng, 1)).rstrip()
    return among_sound(folder, rng, line[: rng.randrange(1, len(line))], kind="jsonl")


@cause("a JSON line of wrong syntax")
def _(folder: Path, rng: random.Random) -> Case:
    text = json.dumps(sentence(rng))
    shapes = [
        "{'text': %s}",
        "{text: %s}",
        '{"text": %s,}',
        '{"text" %s}',
        '{"text": %s} x',
        '{"text": %s} {"text": "b"}',
    ]
    return among_sound(folder, rng, (rng.choice(shapes) % text).encode(), kind="jsonl")


@cause("JSON that is nested too deep")
def _(folder: Path, rng: random.Random) -> Case:
    depth = rng.randint(5000, 200_000)
    line = rng.choice(["[", '{"text":', '{"text":[']) * depth
    return among_sound(folder, rng, line.encode(), kind="jsonl")


@cause("a number of too many digits")
def _(folder: Path, rng: random.Random) -> Case:
    digits = rng.choice("123456789") * rng.randint(4301, 20_000)
    return among_sound(folder, rng, f'{{"text": "{sentence(rng)}", "n": {digits}}}'.encode(), kind="jsonl")


@cause("a JSON line that is no object")
def _(folder: Path, rng: random.Random) -> Case:
    value = rng.choice([[sentence(rng)], sentence(rng), 7, None, True, 1.5, []])
    return among_sound(folder, rng, json.dumps(value).encode(), kind="jsonl")


@cause("a missing field")
def _(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(["Text", "texts", "body", "", "text ", "te\u0000xt", "x" * 5000])
    return among_sound(folder, rng, json.dumps({name: sentence(rng)}).encode(), kind="jsonl")


@cause("a field that no line has")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, data = some_file(rng, ("jsonl", "parquet"))
    path = folder / f"b.{suffix}"
    path.write_bytes(data)
    return Case(
        [str(path)],
        str(path),
        LINE if suffix == "jsonl" else FILE,
        options=["--field", rng.choice(["body", "Text", "a.b", "é"])],
    )


@cause("a field that is no text")
def _(folder: Path, rng: random.Random) -> Case:
    value = rng.choice([None, 3, 2.5, True, [sentence(rng)], {"text": sentence(rng)}, [], {}])
    return among_sound(folder, rng, json.dumps({"text": value}).encode(), kind="jsonl")


@cause("JSON that is not UTF-8")
def _(folder: Path, rng: random.Random) -> Case:
    text = json.dumps({"text": f"{sentence(rng)} é中"}, ensure_ascii=False)
    bad = text.encode("gb18030") if rng.random() < 0.5 else text.replace("中", "").encode("latin-1")
    return among_sound(folder, rng, bad, LINE + r", byte \d+", kind="jsonl")


@cause("a NUL in JSON")
def _(folder: Path, rng: random.Random) -> Case:
    line = json.dumps({"text": sentence(rng).replace(" ", "\0", 1)}).encode()
    return among_sound(folder, rng, line, kind="jsonl")


@cause("half a surrogate pair in JSON")
def _(folder: Path, rng: random.Random) -> Case:
    half = chr(rng.randrange(0xD800, 0xE000))
    return among_sound(folder, rng, json.dumps({"text": sentence(rng) + half}).encode(), kind="jsonl")


@cause("a JSON line over the limit")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, 3)
    suffix, pack = rng.choice([("", bytes), (".zst", zstd)])
    path = folder / f"huge.jsonl{suffix}"
    path.write_bytes(pack(json_file(good[:1]) + b'{"text": "' + b"x" * OVER_LIMIT + b'"}\n' + json_file(good[1:])))
    return Case([str(path)], str(path), LINE, good=good)


@cause("a Markdown file over the limit")
def _(folder: Path, rng: random.Random) -> Case:
    suffix, pack = rng.choice([("", bytes), (".zst", zstd)])
    return with_sound(folder, rng, f"huge.md{suffix}", pack(b"word " * (OVER_LIMIT // 5 + 1)))


# Parquet


@cause("a Parquet file that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    data = parquet_file(documents(rng, rng.randint(1, 200)))
    return with_sound(folder, rng, "b.parquet", data[: rng.randrange(len(data))])


@cause("a Parquet file with a flipped bit")
def _(folder: Path, rng: random.Random) -> Case:
    texts = documents(rng, 50)
    data = parquet_file(texts)
    first = min(data.index(text.encode()) for text in texts)  # the page of the texts: they lie in it as they are
    last = max(data.index(text.encode()) for text in texts)
    return with_sound(folder, rng, "b.parquet", flipped(rng, data, first, last))


@cause("a file that is no Parquet file")
def _(folder: Path, rng: random.Random) -> Case:
    data = rng.choice([b"", b"PAR1", b"PAR1PAR1", text_file(documents(rng, 3)), b"PAR1" + rng.randbytes(99) + b"PAR1"])
    return with_sound(folder, rng, f"b.parquet{rng.choice(['', '.gz'])}", data)


@cause("a Parquet file without the column")
def _(folder: Path, rng: random.Random) -> Case:
    return with_sound(folder, rng, "b.parquet", parquet_file(documents(rng, 3), rng.choice(["Text", "body", "a.text"])))


@cause("a Parquet column that is no text")
def _(folder: Path, rng: random.Random) -> Case:
    values = rng.choice([[1, 2], [1.5], [True], [["a"], ["b"]], [{"text": "a"}], [b"bytes"], [None, None]])
    return with_sound(folder, rng, "b.parquet", parquet_file(values))


@cause("a Parquet row that is null, has a NUL, or is not UTF-8")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, rng.randint(1, 150))
    place = rng.randrange(len(good) + 1)
    bad = rng.choice([None, b"a text with \0 in it", b"a text with \xff in it"])
    rows = [text.encode() for text in good]
    data = parquet_file(pyarrow.array([*rows[:place], bad, *rows[place:]]).view(pyarrow.string()))
    path = folder / "b.parquet"
    path.write_bytes(data)
    return Case([str(path)], str(path), ROW, good=good)


# Files and folders


@cause("a path that is not there")
def _(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(
        ["missing.txt", "missing/", "missing/a.txt", "x" * 300, "/".join(["x" * 200] * 30), "a.txt/b.txt"]
    )
    (folder / "a.txt").write_bytes(text_file(documents(rng, 2)))
    return Case([str(folder / "a.txt"), f"{folder}/{name}"], f"{folder}/{name}")


@cause("a pattern that matches nothing")
def _(folder: Path, rng: random.Random) -> Case:
    (folder / "a.txt").write_bytes(text_file(documents(rng, 2)))
    name = rng.choice(["*.json", "[", "[]", "[z-a].txt", "**/*.nothing", "**x/**/*.txt", "?", "a.txt/*", "b**/*.txt"])
    blamed = f"{folder}/{name}"
    return Case([blamed], blamed)


@cause("a name that does not tell what the file is")
def _(folder: Path, rng: random.Random) -> Case:
    path = folder / rng.choice(["a.png", "README", "a.gz", "a.text", "a.txt.bz2", "a.json"])
    path.write_bytes(text_file(documents(rng, 2)))
    return Case([str(path)], str(path))


@cause("a built-in corpus that is not there")
def _(_: Path, rng: random.Random) -> Case:
    name = "builtin:" + rng.choice(["", "java-docs", "python", "../x"])
    return Case([name], name)


@cause("a link that leads nowhere")
def _(folder: Path, rng: random.Random) -> Case:
    made = with_sound(folder, rng, name := f"b.{rng.choice(['txt', 'jsonl', 'parquet', 'md', 'txt.gz'])}", b"")
    (folder / name).unlink()
    (folder / name).symlink_to(rng.choice(["nowhere", name]))
    return made


@cause("links in circles")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, 4)
    (folder / "f" / "g").mkdir(parents=True)
    (folder / "f" / "a.txt").write_bytes(text_file(good))
    for number in range(rng.randint(1, 5)):
        link = folder / rng.choice(["", "f", "f/g"]) / f"link{number}"
        link.symlink_to(folder / rng.choice(["", "f", "f/g"]))
    counted = r"\d skipped: a folder reached twice through links"
    return Case([str(folder)], str(folder), good=good, stops=False, counted=counted)


@cause("a broken file many folders deep")
def _(folder: Path, rng: random.Random) -> Case:
    deep = folder / "/".join(["d"] * rng.randint(50, 400))
    deep.mkdir(parents=True)
    made = with_sound(deep, rng, "b.txt", b"\xff", place=LINE)
    return Case([str(folder)], made.blamed, LINE, good=made.good)


@cause("folders too deep for the system")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, 3)
    (folder / "a.txt").write_bytes(text_file(good))
    before, name = os.open(".", os.O_RDONLY), "d" * rng.randint(150, 250)
    os.chdir(folder)
    for _ in range(40):
        os.mkdir(name)  # noqa: PTH102 the whole path would be too long
        os.chdir(name)
    os.fchdir(before)
    os.close(before)
    return Case([str(folder)], f"{folder}/{name}", r"[/d]*: ", good=good)


@cause("a folder or file that may not be read")
def _(folder: Path, rng: random.Random) -> Case:
    shut = folder / "shut"
    shut.mkdir()
    inside = with_sound(shut, rng, "b.txt", text_file(documents(rng, 2)))
    good = documents(rng, 3)
    (folder / "a.txt").write_bytes(text_file(good))
    blamed = rng.choice([shut, shut / "b.txt"])
    if blamed != shut:
        good += inside.good or []
        (shut / "a.txt").unlink(missing_ok=True)
        (shut / "z.txt").write_bytes(text_file(inside.good or []))
    blamed.chmod(0)
    return Case([str(folder)], str(blamed), good=good, unprivileged=True)


@cause("pipes in a folder")
def _(folder: Path, rng: random.Random) -> Case:
    good = documents(rng, 3)
    (folder / "a.txt").write_bytes(text_file(good))
    os.mkfifo(folder / f"b.{rng.choice(['txt', 'jsonl', 'parquet', 'md.gz'])}")
    return Case([str(folder)], str(folder), good=good, stops=False, counted=r"1 files of other kinds ignored")


@cause("an empty file")
def _(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(["b.txt", "b.jsonl", "b.md", "b.txt.gz", "b.jsonl.zst", "b.md.gz"])
    made = with_sound(folder, rng, name, rng.choice([b"", b"\n\n \n"]) if name.count(".") == 1 else b"")
    return Case(made.names, made.blamed, good=made.good, stops=False, counted="1 empty files")


@cause("a corpus of nothing")
def _(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(["b.txt", "b.jsonl", "b.md"])
    short = {
        "b.txt": b"Short.\n\nToo.\n",
        "b.jsonl": b'{"text": ""}\n{"text": "short"}\n',
        "b.md": b"# A\n\n```\ncode\n",
    }
    path = folder / name
    path.write_bytes(rng.choice([b"", b"\n", b" \n\n\t\r\n", short[name]]))
    return Case([str(path)], str(path))


@cause("a folder with nothing to read")
def _(folder: Path, rng: random.Random) -> Case:
    for name in rng.sample(["picture.png", ".hidden.txt", "Makefile", "notes.json"], rng.randint(0, 3)):
        (folder / name).write_bytes(b"A text that is long enough.")
    return Case([str(folder)], str(folder))


@cause("broken standard input")
def _(_: Path, rng: random.Random) -> Case:
    data = text_file(documents(rng, 3))
    broken, place = rng.choice(
        [(b"\xff", LINE), (b"a\0b", LINE), (gz(data)[:-5], FILE), (zstd(data)[:-5], FILE), (b"", FILE)]
    )
    return Case(["-"], "standard input", place, stdin=broken)
