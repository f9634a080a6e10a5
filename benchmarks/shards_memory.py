"""Peak resident memory of all processes together while 500 MB and 2 GB of text become shards.

The text is the real corpora of ../shared/data, repeated. Memory is the sum over the process and its workers of their
resident pages, looked at ten times a second (shared pages count in each, so the truth is a little lower).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
NAMES = ("en-web", "zh-web", "en-general", "en-movies")
SIZES = {"500 MB": 500_000_000, "2 GB": 2_000_000_000}
PAGE = os.sysconf("SC_PAGE_SIZE")


def write_text(path: Path, size: int) -> int:
    """Repeat the corpora, one plain-text document after the other, until there is enough; gives the bytes."""
    texts = [json.loads(line)["text"] for name in NAMES for line in (CORPORA / f"{name}.jsonl").open(encoding="utf-8")]
    data = [json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts]
    written = number = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(data[number % len(data)])
            number += 1
    return written


def resident(pid: int) -> int:
    """Bytes of a process and of all its descendants."""
    total, waiting = 0, [pid]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        try:
            total += int((process / "statm").read_text().split()[1]) * PAGE
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def measure(source: Path, target: Path, tokenizer: str, workers: int) -> tuple[int, float, dict[str, int]]:
    """Peak bytes, seconds, and what came out."""
    command = [sys.executable, "-m", "bertsmith", "shards", str(source), "--tokenizer", tokenizer,
               "--output", str(target), "--workers", str(workers), "--json"]  # fmt: skip
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
        assert process.stdout is not None
        out = json.loads(process.stdout.read())
    if process.returncode:
        raise SystemExit(f"the build failed with {process.returncode}")
    return peak, time.perf_counter() - begun, out["train"]


def main() -> int:
    """Measure, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    rows, peaks = [], {}
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "text.jsonl"
            written = write_text(source, size)
            peak, seconds, facts = measure(source, Path(scratch) / "shards", "minilm", options.workers)
            peaks[name] = peak
            rows.append(
                f"| {name} | {written / 1e6:,.0f} | {facts['tokens'] / 1e6:,.0f} | {seconds:.0f} | "
                f"{written / seconds / 1e6:.1f} | {peak / 1e6:,.0f} |"
            )
            sys.stderr.write(rows[-1] + "\n")
    growth = peaks["2 GB"] / peaks["500 MB"] - 1
    verdicts = [
        ("peak while building 2 GB", "under 1,200 MB", f"{peaks['2 GB'] / 1e6:,.0f} MB", peaks["2 GB"] < 1.2e9),
        ("against the peak for 500 MB", "within 10%", f"{growth:+.1%}", abs(growth) <= 0.1),
    ]
    harness.show(
        "shards-memory",
        "Memory while building shards",
        [
            (__doc__ or "").strip(),
            "",
            f"{options.workers} workers, MiniLM's tokenizer. {harness.no_products()}",
            "",
            "| text | MB read | million tokens | seconds | MB a second | peak, MB |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("sentencex"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
