"""Requests made from the service's own OpenAPI; `benchmarks/schemathesis_run.py` makes ten thousand of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from absence import absent
from schemathesis_run import NARROWER, POSTS, configuration, fewest_good
from serve.conftest import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

EXAMPLES = 12  # valid, and as many broken ones, of each route


@pytest.fixture(scope="module")
def address(make_app: Callable[..., FastAPI]) -> Iterator[str]:
    with listening(make_app()) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_route_that_only_refused_is_found():
    answers = {"/a": Counter({"200": 3, "422": 9}), "/b": Counter({"422": 9}), "/c": Counter({"200": 1})}
    asked = {"/a": True, "/b": True, "/c": False}
    assert fewest_good(answers, asked, body=True) == (0, "/b")
    assert fewest_good(answers, {**asked, "/d": False}, body=False) == (0, "/d"), "never asked"


def test_no_request_made_from_the_schema_finds_a_fault(address: str):
    try:
        import schemathesis
    except ImportError:
        absent("package schemathesis is not installed (pip install 'bertsmith[dev]')")
    config = schemathesis.Config.from_dict(configuration())
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", config=config)
    few = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    asked: dict[str, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            if mode == schemathesis.GenerationMode.NEGATIVE and operation.method.upper() == "GET":
                continue  # there is nothing in it to break

            @few
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: schemathesis.Case) -> None:
                asked[case.operation.path] = asked.get(case.operation.path, 0) + 1
                case.call_and_validate()

            check()
    assert sum(count > EXAMPLES for count in asked.values()) == POSTS
    assert NARROWER.keys() <= asked.keys()
