"""A build of shards killed with SIGKILL at random moments, and run again: does it end with the same bytes?

One undisturbed build gives the bytes. Then, again and again, the same build is started in a process group of its own
and killed: by turns the whole group, or the parent alone, whose workers must end by themselves. The same command is
run again and every file of the folder compared. Half of the moments are drawn from the time when shards get finished,
the others from the whole build; how many shards were finished is read off the folder after the kill.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import harness

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
NAMES = ("en-movies", "en-general")
VOCAB_SIZE = 8000
SHARD_MB = 1.9
WORKERS = 2
PATIENCE = 10.0  # seconds for workers to notice that their parent is gone


@dataclass(frozen=True)
class Undisturbed:
    """What a build that nobody kills comes to, and when."""

    files: dict[str, str]  # the SHA-256 of each
    num_units: int
    first: float  # seconds until the first unit was finished
    last: float  # until the last was


@dataclass(frozen=True)
class Kill:
    """One kill and what became of it."""

    whole_group: bool
    seconds: float
    num_finished: int
    lingering: float  # seconds until no process of the build was left
    same: bool


def main() -> int:
    """Kill, compare, print the page, keep it if asked."""
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--kills", type=int, default=30, help="number of kills")
    parser.add_argument("--seed", type=int, default=2026, help="decides the moments")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        room = Path(name)
        command = prepare(room)
        expected = build_undisturbed(command, room / "undisturbed")
        kills: list[Kill] = []
        while len(kills) < args.kills:
            kill = kill_once(command, room / f"data-{len(kills)}", expected, rng, number=len(kills))
            if kill is None:
                continue  # it was done before the moment came
            kills.append(kill)
            sys.stderr.write(f"kill {len(kills)} of {args.kills}: {kill}\n")
    return report(kills, expected, keep=args.keep)


def prepare(room: Path) -> list[str]:
    """Learn a vocabulary; gives the command of a build but for its folder, which comes last."""
    corpus = [str(CORPORA / f"{name}.jsonl") for name in NAMES]
    vocabulary = str(room / "vocabulary")
    bertsmith = [sys.executable, "-m", "bertsmith"]
    learn = [*bertsmith, "vocab", *corpus, "--size", str(VOCAB_SIZE), "--output", vocabulary]
    subprocess.run(learn, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    options = ["--tokenizer", vocabulary, "--shard-mb", str(SHARD_MB), "--workers", str(WORKERS)]
    return [*bertsmith, "shards", *corpus, *options, "--output"]


def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """The build in a process group of its own."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command, str(folder)], stdout=quiet, stderr=quiet, start_new_session=True)


def build_undisturbed(command: list[str], folder: Path) -> Undisturbed:
    """Build once, and watch when units get finished."""
    begun = time.perf_counter()
    moments = [0.0]
    with start(command, folder) as process:
        while process.poll() is None:
            if num_finished(folder) >= len(moments):
                moments.append(time.perf_counter() - begun)
            time.sleep(0.002)
    if process.returncode != 0:
        raise SystemExit(f"the undisturbed build failed with code {process.returncode}")
    files = digests(folder)
    num_units = sum(name.startswith("train-") for name in files)
    sys.stderr.write(f"undisturbed: {num_units} units between {moments[1]:.1f} and {moments[-1]:.1f} s\n")
    return Undisturbed(files, num_units, moments[1], moments[-1])


def kill_once(
    command: list[str], folder: Path, expected: Undisturbed, rng: random.Random, *, number: int
) -> Kill | None:
    """Kill one build and run it again; None where it was over too soon."""
    aimed, whole_group = number % 4 < 2, number % 2 == 0
    after = rng.uniform(0, expected.last - expected.first if aimed else expected.last)
    begun = time.perf_counter()
    with start(command, folder) as process:
        while aimed and process.poll() is None and not num_finished(folder):
            time.sleep(0.001)
        time.sleep(after)
        if process.poll() is not None:
            remove(folder)
            return None
        seconds = time.perf_counter() - begun
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        lingering = wait_for_end(process.pid)
    # With the index in place all units are finished, and their records may be on their way out.
    finished = expected.num_units if (folder / "index.json").exists() else num_finished(folder)
    rerun = subprocess.run([*command, str(folder)], capture_output=True, check=False)
    same = rerun.returncode == 0 and digests(folder) == expected.files
    if same:
        remove(folder)
    return Kill(whole_group, seconds, finished, lingering, same)


def num_finished(folder: Path) -> int:
    """Units that have their record."""
    return len(list(folder.glob(".building/unit-*.json")))


def digests(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def remove(folder: Path) -> None:
    """All of it: the disk need not hold every build."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    folder.rmdir()


def wait_for_end(group: int) -> float:
    """Seconds until no process of a group is left; what is left after some time is killed."""
    begun = time.perf_counter()
    while members(group):
        if time.perf_counter() - begun > PATIENCE:
            os.killpg(group, signal.SIGKILL)
            break
        time.sleep(0.005)
    return time.perf_counter() - begun


def members(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it ended meanwhile
            continue
        if int(owner) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def report(kills: list[Kill], expected: Undisturbed, *, keep: bool) -> int:
    """The page; gives the exit code."""
    num_same = sum(kill.same for kill in kills)
    num_between = sum(0 < kill.num_finished < expected.num_units for kill in kills)
    slowest = max((kill.lingering for kill in kills if not kill.whole_group), default=0.0)
    verdicts = [
        ("the run after a kill ends with the bytes of an undisturbed build", f"{len(kills)} of {len(kills)}",
         f"{num_same} of {len(kills)}", num_same == len(kills)),
        ("kills after the first finished shard and before the last", f"at least {-(-len(kills) // 2)}",
         str(num_between), 2 * num_between >= len(kills)),
        ("workers end after their parent alone was killed", f"within {PATIENCE:.0f} s", f"{slowest:.2f} s at most",
         slowest < PATIENCE),
    ]  # fmt: skip
    lines = [
        harness.versions("numpy"),
        "",
        harness.no_products(),
        "",
        f"`bertsmith shards` on {' and '.join(NAMES)} of `../shared/data/corpus` with {WORKERS} workers: "
        f"{expected.num_units} work units of {SHARD_MB} million characters, of which an undisturbed build finishes the "
        f"first after {expected.first:.1f} s and the last after {expected.last:.1f} s. Every file of the folder is "
        "compared, hidden ones too.",
        "",
        *harness.verdict_table(verdicts),
        "",
        "| kill | SIGKILL to | after, s | units finished | all processes gone after, s | same bytes |",
        "|---:|---|---:|---:|---:|---|",
    ]
    for number, kill in enumerate(kills, start=1):
        target = "the group" if kill.whole_group else "the parent"
        lines.append(
            f"| {number} | {target} | {kill.seconds:.2f} | {kill.num_finished} of {expected.num_units} "
            f"| {kill.lingering:.2f} | {'yes' if kill.same else '**no**'} |"
        )
    harness.show("kills", "Builds of shards, killed and run again", lines, keep=keep)
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
