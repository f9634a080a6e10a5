"""What a running service says of itself at `/metrics`, and what its log says: for the pages of benchmarks."""

from __future__ import annotations

import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from pathlib import Path


class Figures(NamedTuple):
    """Requests by route and status, and the tokens in the queue."""

    requests: Counter[tuple[str, str]]
    queue: float

    def with_status(self, first: str) -> int:
        """Requests whose status begins so: "5" is all of 500 and above."""
        return sum(count for (_, status), count in self.requests.items() if status.startswith(first))

    def by_status(self) -> Counter[str]:
        """Over all routes."""
        found: Counter[str] = Counter()
        for (_, status), count in self.requests.items():
            found[status] += count
        return found

    def by_route(self) -> dict[str, Counter[str]]:
        """For each route the statuses and how often."""
        found: dict[str, Counter[str]] = {}
        for (route, status), count in sorted(self.requests.items()):
            found.setdefault(route, Counter())[status] += count
        return found


def read_figures(address: str, token: str | None = None) -> Figures:
    """Ask a service."""
    asked = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as page:
        return parse_figures(page.read().decode())


def parse_figures(text: str) -> Figures:
    """The same from the page's text."""
    requests: Counter[tuple[str, str]] = Counter()
    queue = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "bertsmith_requests_total":
                requests[sample.labels["route"], sample.labels["status"]] += int(sample.value)
            elif sample.name == "bertsmith_queue_tokens":
                queue = sample.value
    return Figures(requests, queue)


def verdicts_of(figures: Figures, log: Path) -> list[tuple[str, str, str, bool]]:
    """That a service came through: rows for `harness.verdict_table`."""
    failed, traces = figures.with_status("5"), log.read_text(errors="replace").count("Traceback")
    return [
        ("tokens in the queue at the end, by the server's own count", "0", f"{figures.queue:.0f}", figures.queue == 0),
        ("answers of 500 and above, by the server's own count", "none", str(failed), failed == 0),
        ("tracebacks in the server's log", "none", str(traces), traces == 0),
    ]
