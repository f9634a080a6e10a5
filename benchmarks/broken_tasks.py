"""Hundreds of broken files of tasks through `bertsmith finetune`: each refused with its file and the line.

Each case is a sound file in which one thing is broken, at a place that its seed decides. The command must end with exit
code 2 and one sentence that begins with the file and the very line, and leave nothing behind. Never a traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import string
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import parquet

import harness
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.cli.main import run
from bertsmith.config import BertConfig
from bertsmith.model.heads import build
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from causes import Causes

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["CAUSES", "Bench", "Case", "make_case", "run_all"]

WORDS = ["the", "river", "stone", "light", "winter", "garden", "letter", "window", "music", "paper", "bread", "horse"]
LABELS = ["neg", "pos"]
TAGS = ["O", "O", "O", "B-PER", "I-PER", "B-LOC"]
PIECES = [*SPECIAL_TOKENS, *WORDS, *string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase), "."]


@dataclass(frozen=True)
class Case:
    """A command's options, the file that is to blame, and the line; None where a file has none."""

    options: list[str]
    blamed: Path
    line: int | None


CAUSES: Causes[Case] = Causes()
cause, make_case = CAUSES.register, CAUSES.make


# Sound parts


def sentence(rng: random.Random) -> str:
    """Some words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))


def rows_of(rng: random.Random) -> list[list[str]]:
    """Texts and labels, both classes among them."""
    rows = [[sentence(rng), rng.choice(LABELS)] for _ in range(rng.randint(1, 30))]
    return [[sentence(rng), label] for label in LABELS] + rows


def objects_of(rng: random.Random) -> list[dict[str, Any]]:
    """The same as objects."""
    return [{"text": text, "label": label} for text, label in rows_of(rng)]


def questions_of(rng: random.Random) -> list[dict[str, Any]]:
    """Questions with choices."""
    return [
        {"text": sentence(rng), "choices": [sentence(rng) for _ in range(3)], "label": rng.randrange(3)}
        for _ in range(rng.randint(2, 20))
    ]


def table(rows: list[list[str]], separator: str = "\t", header: tuple[str, ...] = ("text", "label")) -> list[bytes]:
    """The lines of a table."""
    return [separator.join(row).encode() for row in [list(header), *rows]]


def json_lines(rows: list[Any]) -> list[bytes]:
    """One value a line."""
    return [json.dumps(row).encode() for row in rows]


def written(path: Path, lines: list[bytes]) -> Path:
    """A file of these lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def trained_on(path: Path, line: int | None, kind: str = "classify", *more: str) -> Case:
    """A case whose training file is broken."""
    return Case(["--task", kind, "--train", str(path), *more], path, line)


def broken_line(
    rng: random.Random, path: Path, lines: list[bytes], bad: bytes, kind: str = "classify", first: int = 1
) -> Case:
    """One more line, somewhere behind the first so many."""
    place = rng.randint(first, len(lines))
    return trained_on(written(path, [*lines[:place], bad, *lines[place:]]), place + 1, kind)


def broken_row(rng: random.Random, folder: Path, rows: list[dict[str, Any]], kind: str, **changes: Any) -> Case:
    """One object with other values."""
    place = rng.randrange(len(rows))
    changed = {key: value for key, value in {**rows[place], **changes}.items() if value is not ...}
    path = written(folder / "a.jsonl", json_lines([*rows[:place], changed, *rows[place + 1 :]]))
    return trained_on(path, place + 1, kind)


# Tables


@cause("a row with too many columns")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_line(rng, folder / "a.tsv", table(rows_of(rng)), b"\t".join([b"river"] * rng.randint(3, 6)))


@cause("a row with too few columns")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_line(rng, folder / "a.tsv", table(rows_of(rng)), sentence(rng).encode())


@cause("a row in Latin-1")
def _(folder: Path, rng: random.Random) -> Case:
    bad = f"{sentence(rng)} café {sentence(rng)}\tpos".encode("latin-1")
    return broken_line(rng, folder / "a.tsv", table(rows_of(rng)), bad)


@cause("a file in UTF-16 or UTF-32")
def _(folder: Path, rng: random.Random) -> Case:
    text = b"\n".join(table(rows_of(rng))).decode()
    path = folder / rng.choice(["a.tsv", "a.csv"])
    path.write_bytes(text.encode(rng.choice(["utf-16", "utf-32"])))
    return trained_on(path, 1)


@cause("two columns of the same name")
def _(folder: Path, rng: random.Random) -> Case:
    rows = [[text, text, label] for text, label in rows_of(rng)]
    return trained_on(written(folder / "a.tsv", table(rows, header=("text", "text", "label"))), 1)


@cause("a label that is empty")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_line(rng, folder / "a.tsv", table(rows_of(rng)), sentence(rng).encode() + b"\t")


@cause("columns of other names")
def _(folder: Path, rng: random.Random) -> Case:
    header = rng.choice([("words", "label"), ("text", "class"), ("Text", "Label")])
    return trained_on(written(folder / "a.tsv", table(rows_of(rng), header=header)), 2)


@cause("a header where columns go by number")
def _(folder: Path, rng: random.Random) -> Case:
    header = ("sentence", rng.choice(["label", "Label", "labels", "score"]))
    path = written(folder / "a.tsv", table(rows_of(rng), header=header))
    return trained_on(path, 1, "classify", "--column", "text=1", "--column", "label=2")


@cause("two columns that could be the text")
def _(folder: Path, rng: random.Random) -> Case:
    rows = [[sentence(rng), *row] for row in rows_of(rng)]
    return trained_on(written(folder / "a.tsv", table(rows, header=("question", "sentence", "label"))), 2)


@cause("a column that is not there")
def _(folder: Path, rng: random.Random) -> Case:
    path = written(folder / "a.tsv", table(rows_of(rng)))
    columns = rng.choice(
        [["text=words"], ["label=class"], ["pair=text2"], ["text=3", "label=2"], ["text=1", "label=9"]]
    )
    options = [part for column in columns for part in ("--column", column)]
    return trained_on(path, len(columns) % 2 + 1, "classify", *options)  # by number the first line is data


@cause("an empty file")
def _(folder: Path, rng: random.Random) -> Case:
    path = folder / f"a.{rng.choice(['tsv', 'csv', 'jsonl'])}"
    path.write_bytes(rng.choice([b"", b"\n\n"]))
    return trained_on(path, 1)


@cause("a header and nothing else")
def _(folder: Path, rng: random.Random) -> Case:
    return trained_on(written(folder / f"a.{rng.choice(['tsv', 'csv'])}", [b"text,label\tlabel"]), 1)


@cause("a CSV quote that is never closed")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_line(rng, folder / "a.csv", table(rows_of(rng), ","), b'"river,pos')


@cause("CSV text behind a quote")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_line(rng, folder / "a.csv", table(rows_of(rng), ","), b'"river"stone,pos')


# JSON lines


@cause("a JSON line that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    whole = json.dumps({"text": sentence(rng), "label": "pos"}).encode()
    cut = whole[: rng.randrange(1, len(whole))]
    return broken_line(rng, folder / "a.jsonl", json_lines(objects_of(rng)), cut, first=0)


@cause("a JSON line that is no object")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([b"[]", b'["river", "pos"]', b'"river"', b"3", b"null", b"[" * 5000])
    return broken_line(rng, folder / "a.jsonl", json_lines(objects_of(rng)), bad, first=0)


@cause("half a surrogate pair")
def _(folder: Path, rng: random.Random) -> Case:
    half = chr(rng.randrange(0xD800, 0xE000))
    return broken_row(rng, folder, objects_of(rng), "classify", text=f"{sentence(rng)} {half}")


@cause("a text that is no text")
def _(folder: Path, rng: random.Random) -> Case:
    value = rng.choice([None, 3, True, ["river"], {"a": 1}])
    return broken_row(rng, folder, objects_of(rng), "classify", text=value)


@cause("a row without its label")
def _(folder: Path, rng: random.Random) -> Case:
    rows = objects_of(rng)
    return broken_row(rng, folder, rows, "classify", label=rng.choice([..., None, ["pos"], {}]))


@cause("a number that is none")
def _(folder: Path, rng: random.Random) -> Case:
    rows = [{"text": sentence(rng), "score": rng.random()} for _ in range(rng.randint(2, 20))]
    return broken_row(rng, folder, rows, "regress", score=rng.choice(["high", "nan", "1e999", [], "1,5"]))


# Parquet


def parquet_file(path: Path, texts: Any, labels: list[str]) -> Path:
    """With checksums, so that a flipped bit can be told."""
    made = pyarrow.table({"text": texts, "label": labels})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(made, path, write_page_checksum=True, **plain)
    return path


@cause("a Parquet file that was cut or is none")
def _(folder: Path, rng: random.Random) -> Case:
    rows = rows_of(rng)
    path = parquet_file(folder / "a.parquet", [text for text, _ in rows], [label for _, label in rows])
    data = path.read_bytes()
    path.write_bytes(rng.choice([b"", b"PAR1PAR1", data[: rng.randrange(len(data))], b"text\tlabel\n"]))
    return trained_on(path, 1)


@cause("a Parquet file with a flipped bit")
def _(folder: Path, rng: random.Random) -> Case:
    rows = rows_of(rng)
    path = parquet_file(folder / "a.parquet", [text for text, _ in rows], [label for _, label in rows])
    data = bytearray(path.read_bytes())
    data[data.index(rows[rng.randrange(len(rows))][0].encode())] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return trained_on(path, 1)


@cause("a Parquet row that is null or not UTF-8")
def _(folder: Path, rng: random.Random) -> Case:
    rows = rows_of(rng)
    place = rng.randrange(len(rows))
    texts = [text.encode() for text, _ in rows]
    texts[place] = rng.choice([None, b"caf\xe9"])
    column = pyarrow.array(texts, pyarrow.binary()).view(pyarrow.string())
    return trained_on(parquet_file(folder / "a.parquet", column, [label for _, label in rows]), place + 1)


# Labels of the dev file


@cause("a label in dev that training never had")
def _(folder: Path, rng: random.Random) -> Case:
    train = written(folder / "train.tsv", table(rows_of(rng)))
    bad = f"{sentence(rng)}\t{rng.choice(['neutral', 'Pos', '1', 'pos.'])}"
    made = broken_line(rng, folder / "dev.tsv", table(rows_of(rng)), bad.encode())
    return Case(["--task", "classify", "--train", str(train), "--dev", str(made.blamed)], made.blamed, made.line)


@cause("a second text in one of two files")
def _(folder: Path, rng: random.Random) -> Case:
    rows = [[text, sentence(rng), label] for text, label in rows_of(rng)]
    paired = written(folder / "pairs.tsv", table(rows, header=("sentence1", "sentence2", "label")))
    plain = written(folder / "plain.tsv", table(rows_of(rng)))
    train, dev = rng.sample([paired, plain], 2)
    return Case(["--task", "classify", "--train", str(train), "--dev", str(dev)], dev, 2)


@cause("a tag in dev that training never had")
def _(folder: Path, rng: random.Random) -> Case:
    train, _ = conll_file(folder / "train.txt", rng)
    path, lines = conll_file(folder / "dev.txt", rng)
    place = rng.choice([number for number, line in enumerate(lines) if line])
    lines[place] = b"river " + rng.choice([b"B-ORG", b"I-LOC", b"S-PER"])
    written(path, lines)
    return Case(["--task", "tag", "--train", str(train), "--dev", str(path)], path, place + 1)


# Choices


@cause("a label that is none of the choices")
def _(folder: Path, rng: random.Random) -> Case:
    return broken_row(rng, folder, questions_of(rng), "choose", label=rng.choice([3, -1, "D", "a", None, "", 1.5, "²"]))


@cause("choices that are none")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([["river"], [], "river", None, ["river", 3], [{"text": "river"}, {"label": "B"}]])
    return broken_row(rng, folder, questions_of(rng), "choose", choices=bad, label=0)


# Tags


def conll_file(path: Path, rng: random.Random) -> tuple[Path, list[bytes]]:
    """Sentences with every tag."""
    lines: list[bytes] = []
    for number in range(rng.randint(2, 8)):
        tags = TAGS if number == 0 else rng.choices(TAGS, k=rng.randint(1, 8))
        lines += [f"{rng.choice(WORDS)} {tag}".encode() for tag in tags]
        lines += [b""]
    return written(path, lines), lines


@cause("a word without its tag, or with more")
def _(folder: Path, rng: random.Random) -> Case:
    path, lines = conll_file(folder / "a.txt", rng)
    return broken_line(rng, path, lines, rng.choice([b"river", b"river NN O", b"river stone garden O"]), "tag")


@cause("a tag that is none")
def _(folder: Path, rng: random.Random) -> Case:
    path, lines = conll_file(folder / f"a.{rng.choice(['txt', 'conll', 'bio'])}", rng)
    return broken_line(rng, path, lines, b"river " + rng.choice([b"NN", b"B-", b"PER", b"o", b"X-PER", b"BPER"]), "tag")


@cause("a word in another encoding")
def _(folder: Path, rng: random.Random) -> Case:
    path, lines = conll_file(folder / "a.txt", rng)
    bad = rng.choice(["北京".encode("gbk"), "café".encode("latin-1"), "東京".encode("shift-jis")])
    return broken_line(rng, path, lines, bad + b" O", "tag")


@cause("words and tags that do not fit")
def _(folder: Path, rng: random.Random) -> Case:
    rows = [{"tokens": ["river", "stone"], "tags": ["B-LOC", "O"]} for _ in range(rng.randint(2, 20))]
    bad = rng.choice([["O"], ["O"] * 3, "O O", [1, 2], None, ..., ["NN", "O"]])
    return broken_row(rng, folder, rows, "tag", tags=bad)


# Answers


def squad_file(path: Path, rng: random.Random, change: Callable[[dict[str, Any]], object]) -> Case:
    """A file of several lines in which one question is changed; the line is that on which the question begins."""
    paragraphs: list[dict[str, Any]] = []
    for number in range(rng.randint(2, 9)):
        words = rng.sample(WORDS, 5)
        context = " ".join(words)
        answer = {"text": words[3], "answer_start": context.index(words[3])}
        asked: dict[str, Any] = {"id": f"q{number}", "question": sentence(rng), "answers": [answer]}
        paragraphs.append({"context": context, "qas": [asked]})
    chosen = rng.choice(paragraphs)
    change(asked := chosen["qas"][0])
    chosen["qas"] = [{"mark": "here", **asked}]
    text = json.dumps({"version": "1.1", "data": [{"title": "A", "paragraphs": paragraphs}]}, indent=1)
    path.write_text(text, encoding="utf-8")
    return trained_on(path, text[: text.index('"mark"')].count("\n"), "answer")


@cause("an answer that is not in its context")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([{"text": "mountain"}, {"answer_start": 0}, {"text": ""}, {"answer_start": 999}])
    return squad_file(folder / "a.json", rng, lambda question: question["answers"][0].update(bad))


@cause("an answer's place that is no number")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([None, "3", 2.5, True, [1]])
    return squad_file(folder / "a.json", rng, lambda question: question["answers"][0].update(answer_start=bad))


@cause("a question without text or answers")
def _(folder: Path, rng: random.Random) -> Case:
    bad = rng.choice([{"question": " "}, {"question": None}, {"answers": []}, {"answers": None}, {"answers": "river"}])
    return squad_file(folder / "a.json", rng, lambda question: question.update(bad))


@cause("JSON that was cut")
def _(folder: Path, rng: random.Random) -> Case:
    made = squad_file(folder / "a.json", rng, lambda _: None)
    lines = made.blamed.read_bytes().split(b"\n")
    kept = rng.randrange(3, len(lines))
    made.blamed.write_bytes(b"\n".join(lines[:kept]))
    return trained_on(made.blamed, kept, "answer")


@cause("JSON in another encoding")
def _(folder: Path, rng: random.Random) -> Case:
    made = squad_file(folder / "a.json", rng, lambda _: None)
    lines = made.blamed.read_bytes().split(b"\n")
    place = rng.choice([number for number, line in enumerate(lines) if b'"question"' in line])
    lines[place] = lines[place].replace(b'": "', b'": "caf\xe9 ')
    made.blamed.write_bytes(b"\n".join(lines))
    return trained_on(made.blamed, place + 1, "answer")


@cause("JSON of another shape")
def _(folder: Path, rng: random.Random) -> Case:
    path = folder / "a.json"
    path.write_text(rng.choice(["[]", '{"questions": []}', '{"data": {}}', '{"data": []}', '{"data": [[]]}', "3"]))
    return trained_on(path, 1, "answer")


def question_rows(rng: random.Random) -> list[dict[str, Any]]:
    """Questions as a table has them."""
    sound = {"question": "where", "context": "the river stone", "answer": "river", "start": 4}
    return [{"id": f"q{number}", **sound} for number in range(rng.randint(3, 20))]


@cause("a table of questions with a wrong answer")
def _(folder: Path, rng: random.Random) -> Case:
    starts, answers = [{"start": 5}, {"start": None}], [{"answer": "mountain"}, {"answer": 3}, {"answer": None}]
    bad = rng.choice([*starts, *answers, {"context": ""}])
    return broken_row(rng, folder, question_rows(rng), "answer", **bad)


@cause("two questions with one id")
def _(folder: Path, rng: random.Random) -> Case:
    rows = question_rows(rng)
    place = rng.randrange(1, len(rows))
    rows[place]["id"] = f"q{rng.randrange(place)}"
    return trained_on(written(folder / "a.jsonl", json_lines(rows)), place + 1, "answer")


# Files


@cause("a file that is not there, or of no known kind")
def _(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(["missing.tsv", "missing/a.tsv", "folder.tsv", "a.doc", "a", "a.tsv.gz"])
    if name == "folder.tsv":
        (folder / name).mkdir()
    elif not name.startswith("missing"):
        written(folder / name, table(rows_of(rng)))
    return trained_on(folder / name, None)


@dataclass
class Results:
    """Counts by cause, and what was not as it must be."""

    cases: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Bench:
    """A folder with a model, in which one case after the other is made, tried and removed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, Results()
        config = BertConfig(
            vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=128,
        )  # fmt: skip
        bundle = Bundle(build(config, "encoder", seed=0), Tokenizer.from_pieces(PIECES), 128)
        write_bundle(folder / "model", bundle, source="a benchmark")

    def run_case(self, name: str, seed: int) -> None:
        """Try one case, and note what is wrong."""
        files, output = self.folder / "files", self.folder / "run"
        begun = time.perf_counter()
        case = make_case(name, seed, files)
        self.results.cases[name] += 1
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                options = ["--output", str(output), "--set", "task.max_length=64", "--epochs", "1", *case.options]
                code = run(["finetune", str(self.folder / "model"), *options])
            wrong = judge(case, code, out.getvalue(), err.getvalue(), output)
            self.results.wrong += [f"{name}, {seed}: {what}: {err.getvalue()}"[:2000] for what in wrong]
        except Exception as error:
            self.results.wrong.append(f"{name}, {seed}: {error!r}")
        shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(files)
        self.results.seconds.append(time.perf_counter() - begun)


def judge(case: Case, code: int, out: str, err: str, output: Path) -> list[str]:
    """What is wrong with a refusal."""
    wrong = []
    if code != 2:
        wrong.append(f"the exit code is {code}")
    place = "" if case.line is None else f", line {case.line}"
    if not err.startswith(f"bertsmith: {case.blamed}{place}: "):
        wrong.append(f"the message does not begin with the file and line {case.line}")
    if len(err.splitlines()) != 1 or out:
        wrong.append("not one sentence alone")
    if output.exists():
        wrong.append("something is left behind")
    return wrong


def run_all(count: int, causes: list[str] | None = None) -> Results:
    """So many cases, the causes in turn."""
    causes = causes or list(CAUSES)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for number in range(count):
            bench.run_case(causes[number % len(causes)], number // len(causes))
    return bench.results


def page(results: Results) -> list[str]:
    """Versions, verdicts, and the table of causes."""
    num_cases, num_causes = results.cases.total(), len(results.cases)
    verdicts = [
        ("broken files", "200 or more", f"{num_cases}", num_cases >= 200),
        ("distinct causes", "15 or more", f"{num_causes}", num_causes >= 15),
        ("refusals that were not as they must be", "0", f"{len(results.wrong)}", not results.wrong),
    ]
    lines = [harness.versions("pyarrow"), "", harness.no_products(), ""]
    lines += [*(__doc__ or "").split("\n\n", 1)[1].strip().split("\n"), ""]
    lines += [f"{sum(results.seconds):.0f} seconds in all.", "", *harness.verdict_table(verdicts), ""]
    lines += ["| cause | cases, all refused with file and line |", "|---|---:|"]
    lines += [f"| {cause} | {cases} |" for cause, cases in results.cases.items()]
    return lines + [f"\nWrong: {what}" for what in results.wrong[:20]]


def main() -> int:
    """Try all, print the page, keep it if asked."""
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--count", type=int, default=6 * len(CAUSES), help="number of cases")
    args = parser.parse_args()
    results = run_all(args.count)
    harness.show("broken-tasks", "Broken files of tasks", page(results), keep=args.keep)
    return 1 if results.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
