"""Hundreds of broken inputs through `bertsmith shards`: refused with file and place, or skipped and counted.

Each case of `broken_files.py` is built twice, with `--on-error stop` and with `--on-error skip`. A refusal must have
exit code 2, a message that names the file and the place, and leave no index. A build that went on must say what it
left out, pass `verify`, and have the tokens of a build from the sound documents alone. Never a traceback or a hang.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import string
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import harness
from bertsmith.cli.main import run
from bertsmith.data.shards import ShardSet
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from broken_files import CAUSES, FILE, NOBODY, WORDS, Case, make_case, text_file

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 20  # a case that takes longer hangs


class Hang(BaseException):
    """Not an `Exception`, so that nothing on the way handles it."""


@dataclass
class Outcome:
    """One command line and what came of it."""

    code: int
    out: str
    err: str


@dataclass
class Results:
    """Counts by cause, and what was not as it must be."""

    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    went_on: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Bench:
    """A folder with a tokenizer, in which one case after the other is made, built and removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o777)  # some cases are built by a user who may do little
        (folder / "tokenizer").mkdir()
        letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
        pieces = [*SPECIAL_TOKENS, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
        Tokenizer.from_pieces(pieces).save(folder / "tokenizer", max_length=512)
        self.results = Results()

    def run_case(self, cause: str, seed: int) -> None:
        """Build one case both ways, and note what is wrong."""
        files = self.folder / "files"
        begun = time.perf_counter()
        case = make_case(cause, seed, files)
        results = self.results
        results.cases[cause] += 1
        for on_error in ("stop", "skip"):
            output = self.folder / "output"
            refused = case.good is None or (on_error == "stop" and case.stops)
            try:
                outcome = build(self.folder, case, output, on_error)
                check = check_refused if refused else self.check_built
                wrong = check(case, outcome, output)
                (results.refused if refused else results.went_on)[cause] += 1
                results.wrong += [f"{cause}, {seed}, {on_error}: {what} {outcome}"[:2000] for what in wrong]
            except (Hang, Exception) as error:
                results.wrong.append(f"{cause}, {seed}, {on_error}: {error!r}")
            shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(files)
        results.seconds.append(time.perf_counter() - begun)

    def check_built(self, case: Case, outcome: Outcome, output: Path) -> list[str]:
        """What is wrong with a build that went on."""
        wrong = []
        if outcome.code != 0:
            return ["the exit code is not 0"]
        if not re.search(case.counted, outcome.out):
            wrong.append("nothing is counted")
        if case.stops and not blames(case, outcome):
            wrong.append("the note on what was skipped does not name file and place")
        if "Traceback" in outcome.err + outcome.out:
            wrong.append("a traceback")
        if tokens(output) != self.expected(case.good or []):
            wrong.append("not the tokens of the sound documents")
        return wrong

    def expected(self, good: list[str]) -> list[list[list[int]]]:
        """The tokens of a build from sound documents alone."""
        path, output = self.folder / "sound.txt", self.folder / "expected"
        path.write_bytes(text_file(good))
        outcome = build(self.folder, Case([str(path)], str(path)), output, "stop")
        if outcome.code != 0:
            raise RuntimeError(f"a sound corpus was refused: {outcome}")
        found = tokens(output)
        shutil.rmtree(output)
        return found


def build(folder: Path, case: Case, output: Path, on_error: str) -> Outcome:
    """`bertsmith shards`, in this process and with a time limit."""
    arguments = ["shards", *case.names, "--tokenizer", str(folder / "tokenizer"), "--output", str(output)]
    arguments += ["--workers", "1", "--holdout", "0", "--on-error", on_error, *case.options]
    out, err = io.StringIO(), io.StringIO()
    with time_limit(), given_input(case.stdin), as_user(case), contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = run(arguments)
    return Outcome(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Ends what takes too long."""

    def stop(*_: object) -> None:
        raise Hang(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def given_input(data: bytes | None) -> Iterator[None]:
    """Standard input of these bytes."""
    before = sys.stdin
    sys.stdin = SimpleNamespace(buffer=io.BytesIO(data or b""))  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def as_user(case: Case) -> Iterator[None]:
    """Root may read everything, so what may not be read is read as nobody."""
    drop = case.unprivileged and os.geteuid() == 0
    if drop:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if drop:
            os.seteuid(0)


def blames(case: Case, outcome: Outcome) -> bool:
    """Whether a message names the file and the place; where all was skipped, the file."""
    place = FILE if "the corpus is empty" in outcome.err else case.place
    return re.search(re.escape(case.blamed) + place, outcome.err) is not None


def check_refused(case: Case, outcome: Outcome, output: Path) -> list[str]:
    """What is wrong with a refusal."""
    wrong = []
    if outcome.code != 2:
        wrong.append("the exit code is not 2")
    if not blames(case, outcome):
        wrong.append("the message does not name file and place")
    if "Traceback" in outcome.err + outcome.out:
        wrong.append("a traceback")
    if (output / "index.json").exists():
        wrong.append("a data set is there all the same")
    return wrong


def tokens(output: Path) -> list[list[list[int]]]:
    """All of a data set that was verified: documents, sentences, tokens."""
    shards = ShardSet(output)
    shards.verify()
    return [[part.tolist() for part in shards.document(number)] for number in range(shards.num_documents)]


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
    slowest = max(results.seconds)
    verdicts = [
        ("broken inputs", "300 or more", f"{num_cases}", num_cases >= 300),
        ("distinct causes", "20 or more", f"{num_causes}", num_causes >= 20),
        ("builds that were not as they must be", "0", f"{len(results.wrong)}", not results.wrong),
        ("the slowest case, both builds and their check", f"below {SECONDS} s", f"{slowest:.1f} s", slowest < SECONDS),
    ]
    lines = [
        harness.versions("pyarrow"),
        "",
        harness.no_products(),
        "",
        *(__doc__ or "").split("\n\n", 1)[1].strip().split("\n"),
        "",
    ]
    lines += [f"{sum(results.seconds):.0f} seconds in all.", "", *harness.verdict_table(verdicts), ""]
    lines += ["| cause | cases | builds refused | builds that went on and counted |", "|---|---:|---:|---:|"]
    for cause, cases in results.cases.items():
        lines.append(f"| {cause} | {cases} | {results.refused[cause]} | {results.went_on[cause]} |")
    lines.append(f"| all | {num_cases} | {results.refused.total()} | {results.went_on.total()} |")
    return lines + [f"\nWrong: {what}" for what in results.wrong[:20]]


def main() -> int:
    """Build, print the page, keep it if asked."""
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--count", type=int, default=7 * len(CAUSES), help="number of cases")
    args = parser.parse_args()
    results = run_all(args.count)
    harness.show("broken-inputs", "Broken inputs", page(results), keep=args.keep)
    return 1 if results.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
