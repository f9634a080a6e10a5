"""A real Ray on this machine: the bytes that local processes give, and errors in the same words."""

from __future__ import annotations

import importlib.util
import os
import signal
from typing import TYPE_CHECKING

import pytest

from absence import absent
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.data.pool import run_jobs
from bertsmith.errors import BertsmithError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bertsmith.vocab.tokenizer import Tokenizer

OPTIONS = ShardOptions(shard_mb=0.004, holdout=0.1)


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if importlib.util.find_spec("ray") is None:
        absent("Ray is not installed (pip install 'bertsmith[cluster]')")


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A Ray that is running already: to start one takes seconds."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_ray_builds_the_same_bytes_as_local_processes(tmp_path: Path, corpus: Path, tokenizer: Tokenizer) -> None:
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        built = build_shards([str(corpus)], tokenizer, folder, options=OPTIONS, workers=2, engine=engine)
        assert len(built.index.units) > 10
    local, ray = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("local", "ray"))
    assert local == ray
    assert not is_running(), "the build ends the Ray that it began"


def is_running() -> bool:
    import ray

    running: bool = ray.is_initialized()
    return running


def test_an_error_of_a_task_comes_back_in_its_own_words(local_ray: None) -> None:
    def refuse(number: int) -> int:
        raise InputError(f"number {number} is refused")

    with pytest.raises(InputError, match=r"^number 1 is refused$"):
        list(run_jobs(refuse, [1], engine="ray"))


def test_a_killed_task_is_an_error_that_says_so(local_ray: None) -> None:
    def die(number: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(BertsmithError, match="Ray"):
        list(run_jobs(die, [1], engine="ray"))
    assert is_running(), "a Ray that was there before is left running"
