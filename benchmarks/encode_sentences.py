"""The parts of `encode.py` beside sentence-transformers: `sentences`, `latency`, and `int8`."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bertsmith
import harness
from bertsmith.bundle.resolve import find_model
from bertsmith.tasks.scores import spearman
from sentence_peers import BACKENDS, SentencePeer

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "minilm"
BLOCK = 20
STS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "tasks" / "glue" / "STS-B" / "dev.tsv"


def measure_sentences(options: Any, texts: list[str], needed: float) -> int:
    """5,000 texts from strings to vectors of length 1, against three backends of sentence-transformers."""
    ours = bertsmith.load(MODEL)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        peers = {
            f"sentence-transformers, {backend}": stack.enter_context(
                SentencePeer(backend, find_model(MODEL)[0], texts, Path(scratch), options.threads)
            )
            for backend in BACKENDS
        }
        contenders: dict[str, Callable[[], Any]] = {"bertsmith": lambda: ours.embed(texts, normalize=True)}
        contenders |= {name: peer.encode_all for name, peer in peers.items()}
        vectors = {"bertsmith": contenders["bertsmith"]()}  # and a warm-up
        vectors |= {name: peer.vectors() for name, peer in peers.items()}
        seconds, peaks = harness.take_turns(contenders, options.rounds)
        versions = [f"{name}: {peer.version()}" for name, peer in peers.items()]
    errors = {name: float(np.abs(found - vectors["bertsmith"]).max()) for name, found in vectors.items()}
    mine = seconds["bertsmith"]
    best = min(peers, key=lambda name: statistics.median(seconds[name]))
    default = "sentence-transformers, torch"
    ratios = {name: harness.ratio_interval(mine, seconds[name]) for name in peers}
    verdicts = [
        (f"against the best backend ({best})", "at least 1.1×", harness.interval(ratios[best]), ratios[best][0] >= 1.1),
        ("against its default", "at least 2×", harness.interval(ratios[default]), ratios[default][0] >= 2),
        ("vectors equal", "1e-4", f"{max(errors.values()):.1e}", max(errors.values()) <= 1e-4),
    ]
    rows = [
        f"| {name} | {harness.spread(times)} | {statistics.median(times) / statistics.median(mine):.2f}× | "
        f"{errors[name]:.1e} |"
        for name, times in seconds.items()
    ]
    harness.show(
        "encode-sentences",
        "From strings to sentence vectors, beside sentence-transformers",
        [
            f"MiniLM, {len(texts):,} texts of mixed length, {options.threads} threads, {options.rounds} rounds, each "
            "contender in turn, the peers in processes of their own with their own defaults (batches of 32, sorted by "
            "length); vectors scaled to length 1.",
            "",
            f"Peak of this machine, measured in every round: {harness.describe_peaks(peaks)}. Operations needed: "
            f"{needed / 1e9:.0f} GFLOP; bertsmith's share of the peak: {harness.peak_share(needed, mine, peaks):.0%}.",
            "",
            "| contender | seconds, median (range) | bertsmith is faster by | largest difference |",
            "|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions() + ". " + "; ".join(versions),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


def measure_latency(options: Any, texts: list[str], operations: Callable[[list[int], Any], float]) -> int:
    """One text of 20 tokens at a time."""
    ours = bertsmith.load(MODEL)
    lengths = [len(row) for row in ours.tokenizer.encode_ids(texts)]
    texts = [text for text, length in zip(texts, lengths, strict=True) if length == 20][:200]
    times: dict[str, list[float]] = {"bertsmith": [], "sentence-transformers": []}
    with (
        tempfile.TemporaryDirectory() as scratch,
        SentencePeer("torch", find_model(MODEL)[0], texts, Path(scratch), options.threads) as peer,
    ):
        for number in range(min(10, len(texts))):
            ours.embed([texts[number]], normalize=True)
            peer.encode_one(number)
        sides = {"bertsmith": lambda number: ours.embed([texts[number]], normalize=True),
                 "sentence-transformers": peer.encode_one}  # fmt: skip
        for start in [*range(0, len(texts), BLOCK)] * options.rounds:
            for name, run in sides.items():
                time.sleep(0.3)  # a library's threads spin for a while after their work, and would hold up the other's
                for number in range(start, min(start + BLOCK, len(texts))):
                    began = time.perf_counter()
                    run(number)
                    times[name].append(time.perf_counter() - began)
    blocks = {name: _medians_of_turns(found, len(texts)) for name, found in times.items()}
    ratio = harness.ratio_interval(blocks["sentence-transformers"], blocks["bertsmith"])  # ours over the peer's
    rows = [
        f"| {name} | " + " | ".join(f"{1000 * value:.2f}" for value in np.percentile(found, (25, 50, 75, 99))) + " |"
        for name, found in times.items()
    ]
    harness.show(
        "encode-latency",
        "One short text at a time",
        [
            f"MiniLM, texts of 20 tokens, {options.threads} threads, {len(times['bertsmith']):,} "
            f"times, in turns of {BLOCK}, whose medians the interval is of; the peer in a process of its own, told by "
            "a pipe, which costs it some hundredths of a "
            f"millisecond. Peak: {harness.describe_peaks([harness.measure_peak()])}. Operations needed: "
            f"{operations([20], ours.model.config) / 1e9:.2f} GFLOP a text.",
            "",
            "| | ms, 1st quartile | median | 3rd quartile | 99th percentile |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(
                [("median against sentence-transformers'", "at most 0.8×", harness.interval(ratio), ratio[0] <= 0.8)]
            ),
            "",
            harness.versions("sentence-transformers", "transformers"),
        ],
        keep=options.keep,
    )
    return 0 if ratio[0] <= 0.8 else 1


def _medians_of_turns(times: list[float], num_texts: int) -> list[float]:
    """One for each turn; a round has turns of `BLOCK` texts, the last of which may be shorter."""
    rounds = [times[start : start + num_texts] for start in range(0, len(times), num_texts)]
    return [statistics.median(part[at : at + BLOCK]) for part in rounds for at in range(0, len(part), BLOCK)]


def measure_int8(
    options: Any, texts: list[str], needed: float, onnx: Callable[[Path], Callable[[list[str]], np.ndarray]]
) -> int:
    """Eight bits against 32, ours and onnxruntime's; `onnx` makes a contender of a model file."""
    from bertsmith.jobs.convert import convert

    plain, small = bertsmith.load(MODEL), bertsmith.load(MODEL, int8=True)
    with tempfile.TemporaryDirectory() as scratch:
        convert(MODEL, Path(scratch) / "int8", to="onnx", int8=True)
        theirs = onnx(Path(scratch) / "int8" / "model.onnx")
        contenders: dict[str, Callable[[list[str]], np.ndarray]] = {
            "bertsmith, float32": plain.embed,
            "bertsmith, int8": small.embed,
            "onnxruntime, dynamic int8, sorted": theirs,
        }
        vectors = {name: run(texts) for name, run in contenders.items()}
        scores = {name: _sts(run) for name, run in contenders.items()}
        seconds, peaks = harness.take_turns(
            {name: lambda run=run: run(texts) for name, run in contenders.items()}, options.rounds
        )
    reference = "bertsmith, float32"
    cosines = {name: np.percentile(_cosines(found, vectors[reference]), (1, 50)) for name, found in vectors.items()}
    rows = [
        f"| {name} | {harness.spread(times)} | "
        f"{statistics.median(seconds[reference]) / statistics.median(times):.2f}× | {cosines[name][0]:.4f} | "
        f"{cosines[name][1]:.4f} | {100 * scores[name]:.2f} |"
        for name, times in seconds.items()
    ]
    faster = harness.ratio_interval(seconds["bertsmith, int8"], seconds[reference])
    lost = 100 * (scores[reference] - scores["bertsmith, int8"])
    least = cosines["bertsmith, int8"][0]
    verdicts = [
        ("int8 against our own float32", "at least 1.2×", harness.interval(faster), faster[0] >= 1.2),
        ("cosine to float32, 1st percentile", "at least 0.99", f"{least:.4f}", least >= 0.99),
        ("STS-B, Spearman", "within 0.5 points", f"{lost:+.2f} points lost", abs(lost) <= 0.5),
    ]
    harness.show(
        "encode-int8",
        "Eight bits",
        [
            f"MiniLM, {len(texts):,} texts of mixed length, {options.threads} threads, {options.rounds} rounds, in "
            "turn. "
            "Cosines are to our float32 vectors, STS-B's Spearman correlation is on its dev set.",
            "",
            f"Peak of this machine in float32: {harness.describe_peaks(peaks)}. Operations needed: {needed / 1e9:.0f} "
            "GFLOP.",
            "",
            "| contender | seconds, median (range) | faster by | cosine, 1st percentile | median | STS-B |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("onnxruntime"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


def _cosines(found: np.ndarray, reference: np.ndarray) -> np.ndarray:
    return (found * reference).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(reference, axis=1)


def _sts(embed: Callable[[list[str]], np.ndarray]) -> float:
    """Spearman's correlation of cosines with people's scores."""
    header, *lines = STS.read_text(encoding="utf-8").rstrip("\n").split("\n")
    names = header.split("\t")
    rows = [dict(zip(names, line.split("\t"), strict=False)) for line in lines]
    first, second = (embed([row[name] for row in rows]) for name in ("sentence1", "sentence2"))
    return spearman([float(row["score"]) for row in rows], _cosines(first, second).tolist())
