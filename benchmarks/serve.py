"""The service under load, in three parts, each a page of its own; MiniLM, one text a request, mixed lengths.

`--part load`: throughput and latency from 1 to 256 clients, beside infinity-emb and a plain FastAPI server
(`peer_servers.py`). `--part overload`: three times what it can do, for a minute. `--part rough`: 10,000 clients that
misbehave (`rough_clients.py`). Everything is on 127.0.0.1; `--quick` takes seconds and is no measurement.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import bertsmith
import figures
import harness
import peer_servers
import rough_clients
from bertsmith.bundle.resolve import find_model
from encode import mixed_texts, operations
from load_generator import Job, Phase, Result, generate, percentile

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from peer_servers import Server

LOAD = """The same texts in the same order go to each server, one text a request, over kept-alive connections on
loopback. The servers take turns; those whose turn it is not are stopped (SIGSTOP). Closed loop: each client asks again
when it is answered. Open loop: requests arrive at random (Poisson) whatever the answers do, and their time counts
from when they were due. Every answer is parsed and its vector compared with the library's."""
OVERLOAD = """Requests arrive at random, three times as many as 64 clients in a closed loop got answered. Every answer
is compared with the library's vector. Before and after, one short request every 100 ms shows the normal latency.
It is one run."""
ROUGH = """Clients misbehave in rotation while a well-behaved one asks, is answered, and checks every vector. The server
has `--limit sending=1`; how each kind must end is in the table. A client that is told to come back later (429), as many
large requests at once may be, does so, and misbehaves then. Sockets and memory are counted after a first round of the
same, and two seconds after the end. It is one run."""

CLIENTS = (1, 4, 16, 64, 256)
MAIN = 64  # clients at which the targets are judged
SHARES = (0.5, 0.8)  # of a server's throughput with `MAIN` clients, as an open loop
FASTER, OFFLINE_SHARE = 1.3, 0.8
OVERLOADED = 3.0
REFUSED_WITHIN = 0.25  # seconds, the 99th percentile
BACK_WITHIN = 2.0  # seconds
STILL_DONE = 0.8  # of the capacity, while three times as much is asked for
FLAT = 1.05  # memory at the end over memory before
IN_A_ROW = 5  # normal answers, to believe it


@dataclass(frozen=True)
class Work:
    """Texts, the vectors that are right, and where those are on disk."""

    texts: list[str]
    engine: Any
    vectors: np.ndarray
    file: Path

    @classmethod
    def of(cls, texts: list[str], scratch: Path) -> Work:
        """Ask the library."""
        engine = bertsmith.load("minilm")
        vectors = engine.embed(texts, normalize=True)
        np.save(scratch / "vectors.npy", vectors)
        return cls(texts, engine, vectors, scratch / "vectors.npy")

    def ask(self, server: Server, *phases: Phase) -> list[Result]:
        """Let the generator loose on a server."""
        bodies = [json.dumps({server.field: text}) for text in self.texts]
        return generate(Job(server.port, server.path, bodies, str(self.file), server.form, list(phases)))


@dataclass
class Row:
    """A server in one setting, over all rounds."""

    rates: list[float] = field(default_factory=list)  # right answers a second
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    generator: list[float] = field(default_factory=list)  # share of a core
    refused: int = 0
    errors: int = 0
    worst: float = 0.0

    def add(self, result: Result) -> None:
        """One round more."""
        self.rates.append(result.throughput)
        self.p50.append(percentile(result.good, 0.5))
        self.p99.append(percentile(result.good, 0.99))
        self.generator.append(result.share)
        self.errors += len(result.wrong)
        self.refused += sum(record.status == 429 and record.right for record in result.records)
        self.worst = max(self.worst, result.worst)

    def cells(self) -> str:
        """For a table."""
        middle = statistics.median
        return (
            f"{_range(self.rates)} | {1000 * middle(self.p50):.0f} | {_range([1000 * time for time in self.p99])} | "
            f"{self.refused} | {self.errors} | {middle(self.generator):.1%}"
        )


def _range(values: Sequence[float]) -> str:
    """Median and range, as whole numbers."""
    return f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})"


Rows = dict[tuple[str, str], Row]  # by setting and server
Verdicts = list[tuple[str, str, str, bool]]


def load(options: argparse.Namespace) -> int:
    """Part one."""
    seconds, warm_up = (4.0, 1.0) if options.quick else (options.seconds, 2.0)
    clients = (1, MAIN) if options.quick else CLIENTS
    rows: Rows = {}
    offline: list[float] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        scratch = Path(name)
        work = Work.of(mixed_texts(options.texts), scratch)
        running = []
        for server in _contenders(options, scratch):
            running.append(servers.enter_context(server))
            server.pause()
        for number in range(options.rounds):
            offline.append(_offline_rate(work, seconds))
            for server in running:
                server.go_on()
                closed = [Phase("closed", seconds, clients=count, warm_up=warm_up) for count in clients]
                for phase, result in zip(closed, work.ask(server, *closed), strict=True):
                    rows.setdefault((f"clients: {phase.clients}", server.name), Row()).add(result)
                server.pause()
            _open_loops(work, running, rows, seconds, warm_up)
            _say(f"round {number + 1} of {options.rounds}")
    return _report_load(options, work, rows, offline)


def _contenders(options: argparse.Namespace, scratch: Path) -> list[Server]:
    folder = find_model("minilm")[0]
    makers = {
        "infinity": lambda: peer_servers.infinity_server(scratch, options.threads, folder),
        "plain": lambda: peer_servers.plain_server(scratch, options.threads, folder),
    }
    peers = [makers[name]() for name in options.peers.split(",") if name]
    return [peer_servers.bertsmith_server(scratch, options.threads), *peers]


def _offline_rate(work: Work, seconds: float) -> float:
    """Texts a second of the engine alone, on the same texts, all given at once."""
    began = time.perf_counter()
    passes = 0
    while time.perf_counter() - began < seconds:
        work.engine.embed(work.texts, normalize=True)
        passes += 1
    return passes * len(work.texts) / (time.perf_counter() - began)


def _open_loops(work: Work, running: Sequence[Server], rows: Rows, seconds: float, warm_up: float) -> None:
    """At shares of each one's own throughput in this round, and all at that of the slowest."""
    capacity = {server.name: max(1.0, rows[f"clients: {MAIN}", server.name].rates[-1]) for server in running}
    for server in running:
        rates = {f"open, {share:.0%} of its own": share * capacity[server.name] for share in SHARES}
        rates[f"open, {SHARES[-1]:.0%} of the slowest's"] = SHARES[-1] * min(capacity.values())
        server.go_on()
        for setting, rate in rates.items():  # one at a time: what one leaves behind is no load for the next
            (result,) = work.ask(server, Phase("open", seconds, rate=rate, warm_up=warm_up))
            rows.setdefault((setting, server.name), Row()).add(result)
        server.pause()


def _report_load(options: argparse.Namespace, work: Work, rows: Rows, offline: Sequence[float]) -> int:
    main = {server: row for (setting, server), row in rows.items() if setting == f"clients: {MAIN}"}
    ours = main["bertsmith"]
    share = harness.ratio_interval(offline, ours.rates)  # of rates, not of times: ours over the engine's
    generator = statistics.median(ours.generator) / options.threads
    mine = [row for (_, server), row in rows.items() if server == "bertsmith"]
    errors, refused = sum(row.errors for row in mine), sum(row.refused for row in mine)
    worst = max(row.worst for row in rows.values())
    verdicts = [
        (
            f"throughput with {MAIN} clients beside the engine offline",
            f"at least {OFFLINE_SHARE:.0%}",
            f"{share[0]:.0%} ({share[1]:.0%}–{share[2]:.0%}); the generator took {generator:.1%} of {options.threads} "
            "core(s)",
            share[0] >= OFFLINE_SHARE,
        ),
        ("errors and refusals (429) of bertsmith", "none", f"{errors} and {refused}", errors == refused == 0),
        ("vectors equal to the library's", "1e-4", f"{worst:.1e}", worst <= 1e-4),
    ]
    peers = [name for name in main if name != "bertsmith"]
    if peers:
        best = max(peers, key=lambda name: statistics.median(main[name].rates))
        faster = harness.ratio_interval(*([1 / max(rate, 1e-9) for rate in row.rates] for row in (ours, main[best])))
        quickest = min(peers, key=lambda name: statistics.median(main[name].p99))
        tail = harness.ratio_interval(ours.p99, main[quickest].p99)
        what = f"throughput with {MAIN} clients against the better peer ({best})"
        verdicts.insert(0, (what, f"at least {FASTER}×", harness.interval(faster), faster[0] >= FASTER))
        what = f"p99 with {MAIN} clients: that of the better peer ({quickest}) over ours"
        verdicts.insert(1, (what, "at least 1.0×", harness.interval(tail), tail[0] >= 1.0))
    settings = dict.fromkeys(setting for setting, _ in rows)
    table = [
        f"| {setting} | {server} | {rows[setting, server].cells()} |"
        for setting in settings
        for server in main
        if (setting, server) in rows
    ]
    lengths = [len(row.ids) for row in work.engine.tokenizer.encode_batch(work.texts, max_length=256)]
    infinity = [f"In infinity's environment: {peer_servers.infinity_versions()}."] if "infinity" in main else []
    lines = [
        *LOAD.splitlines(),
        "",
        f"{len(lengths)} texts, {statistics.mean(lengths):.1f} tokens on average ({min(lengths)} to {max(lengths)}), "
        f"threads for each server: {options.threads}, rounds: {options.rounds}; medians over rounds, and the least and "
        "the most of a round in brackets. The engine "
        f"offline: {harness.spread(offline)} texts a second. Refusals (429) and errors (all else that is not a right "
        "vector) are of all rounds.",
        "",
        "| setting | server | answers/s | p50, ms | p99, ms | refused | errors | generator, of a core |",
        "|---|---|---|---|---|---|---|---|",
        *table,
    ]
    packages = ("fastapi", "uvicorn", "sentence-transformers", "transformers")
    return _show("serve-load", "The service beside others", lines, verdicts, options, infinity, packages)


def overload(options: argparse.Namespace) -> int:
    """Part two."""
    seconds, before = (5.0, 2.0) if options.quick else (60.0, 5.0)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        texts = mixed_texts(options.texts)
        work = Work.of(["A short text to ask for again and again.", *texts], scratch)
        with peer_servers.bertsmith_server(scratch, options.threads) as server:
            measure = Phase("closed", 3.0 if options.quick else 10.0, clients=MAIN, warm_up=2.0)
            capacity = max(1.0, work.ask(server, measure)[0].throughput)
            rate = OVERLOADED * capacity
            with _Memory(server) as memory:
                calm, storm, after = work.ask(
                    server,
                    Phase("steady", before, rate=10.0),
                    Phase("open", seconds, rate=rate),
                    Phase("steady", 10.0, rate=10.0),
                )
            rested = server.resident()
            own = figures.verdicts_of(figures.read_figures(server.address), server.log)
    first = round(_LOOKS * before)
    during = memory.seen[first : -round(_LOOKS * after.phase.seconds)]  # the storm alone
    around = statistics.median(memory.seen[:first]), rested
    return _report_overload(options, capacity, (calm, storm, after), during, around, own)


_LOOKS = 4  # a second


class _Memory:
    """Looks at a server's memory some times a second."""

    def __init__(self, server: Server) -> None:
        self.seen: list[float] = []
        self._server, self._over = server, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(1 / _LOOKS):
            self.seen.append(self._server.resident())


def _seconds_until_normal(after: Result, normal: float) -> float:
    """When the first of several answers in a row that are within a limit was due; infinity if there are none."""
    records = sorted(after.records)
    fine = [record.status == 200 and record.right and record.seconds <= normal for record in records]
    for place in range(len(records) - IN_A_ROW + 1):
        if all(fine[place : place + IN_A_ROW]):
            return records[place].due
    return math.inf


def _report_overload(
    options: argparse.Namespace,
    capacity: float,
    results: tuple[Result, Result, Result],
    memory: Sequence[float],
    around: tuple[float, float],  # memory before the storm, and at the end
    own: Verdicts,
) -> int:
    calm, storm, after = results
    usual = percentile(calm.good, 0.5)
    back = _seconds_until_normal(after, 2 * usual)
    statuses = Counter("no answer" if record.status == 0 else str(record.status) for record in storm.records)
    refused = sorted(record.seconds for record in storm.records if record.status == 429)
    wrong = len(storm.wrong) + len(after.wrong) + len(calm.wrong)
    quarter = max(1, len(memory) // 4)
    early, late = statistics.median(memory[quarter : 2 * quarter]), statistics.median(memory[-quarter:])
    refusal = percentile(refused, 0.99)
    verdicts = [
        ("answers that are neither a right vector nor a 429 with Retry-After", "none", str(wrong), wrong == 0),
        (
            "time to a refusal, 99th percentile",
            f"at most {REFUSED_WITHIN * 1000:.0f} ms",
            f"{refusal * 1000:.0f} ms (median {percentile(refused, 0.5) * 1000:.0f})",
            bool(refused) and refusal <= REFUSED_WITHIN,
        ),
        (
            "memory, last quarter over second quarter",
            f"at most {FLAT}×",
            f"{late / early:.3f}× ({early:.0f} to {late:.0f} MiB, at most {max(memory):.0f}; {around[0]:.0f} before "
            f"the storm, {around[1]:.0f} at rest after it)",
            late / early <= FLAT,
        ),
        (
            "until the latency is at most twice what it was",
            f"{BACK_WITHIN:.0f} s",
            "never" if math.isinf(back) else f"{back:.1f} s",
            back <= BACK_WITHIN,
        ),
        (
            "right answers a second under it, of the capacity",
            f"at least {STILL_DONE:.0%}",
            f"{storm.throughput / capacity:.0%}",
            storm.throughput >= STILL_DONE * capacity,
        ),
        *own,
    ]
    shown = ", ".join(f"{status}: {count:,}" for status, count in statuses.most_common())
    lines = [
        *OVERLOAD.splitlines(),
        "",
        f"Threads: {options.threads}. Capacity: {capacity:.0f} answers a second. Offered: {storm.phase.rate:.0f} a "
        f"second for {storm.phase.seconds:.0f} seconds, {len(storm.records):,} requests. Answers: {shown}. Right "
        f"answers a second under it: {storm.throughput:.0f}, {storm.throughput / capacity:.0%} of the capacity; their "
        f"p50 {percentile(storm.good, 0.5):.2f} s, p99 {percentile(storm.good, 0.99):.2f} s. The usual latency before: "
        f"{usual * 1000:.0f} ms. The generator took {storm.share / options.threads:.1%} of the cores.",
    ]
    return _show("serve-overload", "Three times too much", lines, verdicts, options)


def rough(options: argparse.Namespace) -> int:
    """Part three."""
    number, first = (140, 140) if options.quick else (options.clients, 2000)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        words = sorted({text.split()[0] for text in mixed_texts(200)})[:64]
        work = Work.of(words, scratch)
        with peer_servers.bertsmith_server(scratch, options.threads, limits=["sending=1"]) as server:
            target = rough_clients.Target(server.port, words, work.vectors)
            cold = server.resident()
            asyncio.run(rough_clients.misbehave(target, first, options.at_once))
            time.sleep(2)
            before = server.sockets(), server.resident()
            began = time.perf_counter()
            memory: list[float] = []  # at each tenth
            look = lambda: memory.append(server.resident())  # noqa: E731
            tally = asyncio.run(rough_clients.misbehave(target, number, options.at_once, look))
            seconds = time.perf_counter() - began
            time.sleep(2)
            after = server.sockets(), server.resident()
            counted = figures.read_figures(server.address)
            own = figures.verdicts_of(counted, server.log)
    left = counted.with_status("499")
    ends = [(kind, tally.ends[kind.what]) for kind in rough_clients.KINDS]
    wrong = sum(count for kind, counts in ends for end, count in counts.items() if end not in kind.right)
    times = sorted(tally.seconds)
    failures = Counter(tally.failures)
    verdicts = [
        (f"clients of {number:,} that ended in a wrong way", "none", str(wrong), wrong == 0),
        (
            "answers to the well-behaved client",
            "all right",
            f"{len(times):,} right, {len(tally.failures)} not" + (f" ({dict(failures)})" if failures else ""),
            bool(times) and not failures,
        ),
        ("open sockets after, before", "no more", f"{after[0]}, {before[0]}", after[0] <= before[0]),
        (
            "memory after over before",
            f"at most {FLAT}×",
            f"{after[1] / before[1]:.3f}× ({cold:.0f} MiB when new, {before[1]:.0f} before, {after[1]:.0f} after)",
            after[1] / before[1] <= FLAT,
        ),
        ("requests whose client had left (499), by the server's own count", "some", f"{left:,}", left > 0),
        *own,
    ]
    table = [
        f"| {kind.what} | {' or '.join(kind.right)} | {sum(counts.values()):,} | "
        + ", ".join(f"{end}: {count:,}" for end, count in counts.most_common())
        + " |"
        for kind, counts in ends
    ]
    lines = [
        *ROUGH.splitlines(),
        "",
        f"{number:,} clients, at most {options.at_once} at once, in {seconds:.0f} seconds; threads: {options.threads}. "
        f"The well-behaved client's answers took {percentile(times, 0.5) * 1000:.0f} ms (p50) and "
        f"{percentile(times, 0.99) * 1000:.0f} ms (p99). The server's memory after each tenth of the clients: "
        f"{', '.join(f'{size:.0f}' for size in memory)} MiB.",
        "",
        "| a client that | must see | clients | saw |",
        "|---|---|---|---|",
        *table,
    ]
    return _show("serve-rough", "Clients that misbehave", lines, verdicts, options)


def _show(
    name: str,
    title: str,
    lines: Sequence[str],
    verdicts: Sequence[tuple[str, str, str, bool]],
    options: argparse.Namespace,
    more: Sequence[str] = (),
    packages: Sequence[str] = ("fastapi", "uvicorn"),
) -> int:
    """The page; 1 where a target is missed. A quick one is never kept."""
    quick = ["", "**Quick: a rehearsal, no measurement.**"] if options.quick else []
    peak = (
        f"Peak of this machine in float32: {harness.describe_peaks([harness.measure_peak()])}. Matrix products of a "
        f"text of the load, in the mean: {operations_of_a_text(options.texts) / 1e9:.2f} GFLOP."
    )
    content = [*lines, *quick, "", *harness.verdict_table(verdicts), "", peak, *more, harness.versions(*packages)]
    harness.show(name, title, content, keep=options.keep and not options.quick)
    return 0 if all(met for *_, met in verdicts) else 1


def operations_of_a_text(number: int) -> float:
    """The mean over the texts that load and overload send."""
    engine = bertsmith.load("minilm")
    lengths = [len(ids) for ids in engine.tokenizer.encode_ids(mixed_texts(number), max_length=engine.max_length)]
    return operations(lengths, engine.model.config) / number


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Measure one part, print its page."""
    parts = {"load": load, "overload": overload, "rough": rough}
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--part", choices=parts, required=True)
    arguments.add_argument("--quick", action="store_true", help="seconds instead of minutes, to see that it works")
    arguments.add_argument("--texts", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=5, help="of load")
    arguments.add_argument("--seconds", type=float, default=10.0, help="of each setting of load")
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each server")
    arguments.add_argument("--peers", default="infinity,plain", help="of load; an empty text for none")
    arguments.add_argument("--clients", type=int, default=10_000, help="of rough")
    arguments.add_argument("--at-once", type=int, default=64, help="of those of rough")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.texts = 1, min(options.texts, 100)
    torch.set_num_threads(options.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are stopped then too
    return parts[options.part](options)


if __name__ == "__main__":
    sys.exit(main())
