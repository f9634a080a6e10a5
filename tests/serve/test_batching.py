"""The batcher alone, with programs that say back what they read: whose turn it is, and that nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.serve.batching import Batcher, ClosedError, OverloadedError, Pace
from bertsmith.tasks.task import Item
from serve.conftest import SECONDS, Gate, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.tasks.task import TaskBatch

POISON = 1_000_000


class Echo:
    """Gives every item its own ids back, and remembers its batches."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate, self.batches, self.model = gate, [], self

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        ids = np.split(batch.input_ids.numpy(), np.cumsum(batch.lengths.numpy())[:-1])
        self.batches.append(ids)
        if self.gate is not None:
            self.gate.wait()
        if any(POISON in row for row in ids):
            raise RuntimeError("this model cannot")
        return ids


class Caller:
    """Waits for an answer; it must come once."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.came = threading.Event()

    def __call__(self, result: Any) -> None:
        self.results.append(result)
        self.came.set()

    def answer(self) -> Any:
        assert self.came.wait(SECONDS)
        (result,) = self.results
        return result


def item(*ids: int, size: int | None = None) -> Item:
    row = np.array(ids if size is None else np.resize(ids, size), np.int32)
    return Item((row,), (np.zeros_like(row),))


def submit(batcher: Batcher, program: Echo, items: list[Item]) -> Caller:
    caller = Caller()
    batcher.submit(program, items, caller)
    return caller


def same(outputs: list[np.ndarray], items: list[Item]) -> bool:
    return all(np.array_equal(output, one.ids[0]) for output, one in zip(outputs, items, strict=True))


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    made = Batcher(workers=1, max_wait=1000.0)
    made.speed = 1e6  # so that the queue has room
    made.start()
    yield made
    made.close()


@pytest.fixture
def busy(batcher: Batcher) -> Iterator[Gate]:
    """The one worker is in a model until the gate opens, so that what is submitted waits."""
    gate = Gate()
    submit(batcher, Echo(gate), [item(1)])
    assert gate.reached.wait(SECONDS)
    yield gate
    gate.opened.set()


def test_everyone_gets_their_own_outputs_in_their_order():
    batcher = Batcher(workers=3, max_wait=1000.0)
    batcher.speed = 1e6
    batcher.start()
    programs = [Echo() for _ in range(4)]
    rng = np.random.default_rng(0)
    asked = [
        (
            programs[n % 4],
            [item(n % 4, n, k, size=int(size)) for k, size in enumerate(rng.integers(3, 400, 1 + n % 30))],
        )
        for n in range(120)
    ]

    async def ask() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(batcher.run(program, items) for program, items in asked))

    found = asyncio.run(ask())
    batcher.close()
    assert all(same(outputs, items) for outputs, (_, items) in zip(found, asked, strict=True))
    for number, program in enumerate(programs):
        assert all(row[0] == number for batch in program.batches for row in batch), "programs were mixed"
        assert all(sum(map(len, batch)) <= batcher.budget for batch in program.batches)
    assert max(len({row[1] for row in batch}) for batch in programs[0].batches) > 1, "requests were never put together"
    assert batcher.waiting_tokens == 0


def test_no_items_are_answered_at_once_without_the_model(batcher):
    assert asyncio.run(batcher.run(Echo(), [])) == []


def test_a_short_request_does_not_wait_for_a_long_one(batcher, busy):
    program = Echo()
    long = submit(batcher, program, [item(7, n, size=20) for n in range(1000)])
    short = submit(batcher, program, [item(8, 8)])
    busy.opened.set()
    assert same(short.answer(), [item(8, 8)])
    assert len(long.answer()) == 1000
    assert any(row[0] == 8 for row in program.batches[0]), "it had to wait for its turn"


def test_a_short_request_of_another_program_waits_for_one_batch_at_most(batcher, busy):
    order: list[str] = []

    class Named(Echo):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, batch: TaskBatch) -> list[np.ndarray]:
            order.append(self.name)
            return super().forward(batch)

    long = submit(batcher, Named("long"), [item(7, size=500) for _ in range(100)])
    short = submit(batcher, Named("short"), [item(8)])
    busy.opened.set()
    short.answer()
    long.answer()
    assert order.index("short") == 1


def test_long_requests_share_a_batch_by_turns(batcher, busy):
    program = Echo()
    callers = [submit(batcher, program, [item(n, size=64) for _ in range(40)]) for n in range(3)]
    busy.opened.set()
    for caller in callers:
        caller.answer()
    shares = Counter(int(row[0]) for row in program.batches[0])
    assert shares == {0: 8, 1: 8, 2: 8}  # 24 of 64 tokens fit; a turn is 256 tokens


def test_an_item_above_the_budget_goes_alone(batcher, busy):
    program = Echo()
    callers = [submit(batcher, program, [item(n, size=size)]) for n, size in enumerate((10, batcher.budget + 500, 20))]
    busy.opened.set()
    for caller in callers:
        caller.answer()
    sizes = sorted(sorted(map(len, batch)) for batch in program.batches)
    assert sizes == [[10, 20], [batcher.budget + 500]]


def test_a_failure_reaches_those_in_the_batch_and_nobody_else(batcher, busy):
    program, other = Echo(), Echo()
    half = batcher.budget // 2
    poisoned = submit(batcher, program, [item(POISON, size=half)] + [item(1, size=half) for _ in range(50)])
    beside = submit(batcher, program, [item(2)])
    elsewhere = submit(batcher, other, [item(3)])
    busy.opened.set()
    assert isinstance(poisoned.answer(), RuntimeError)
    assert isinstance(beside.answer(), RuntimeError)
    assert same(elsewhere.answer(), [item(3)])
    later = submit(batcher, program, [item(4)])
    assert same(later.answer(), [item(4)])
    assert batcher.waiting_tokens == 0
    assert len(program.batches) == 2, "items of a request that had failed went through the model"


def test_a_failure_is_not_taken_for_speed(batcher):
    batcher.speed = 100.0
    assert isinstance(submit(batcher, Echo(), [item(POISON, size=1000)]).answer(), RuntimeError)
    gate = Gate()
    submit(batcher, Echo(gate), [item(1)])
    assert gate.reached.wait(SECONDS)  # the worker is past the failure
    assert batcher.speed == 100.0
    gate.opened.set()


def test_each_model_has_its_own_speed(batcher, busy):
    quick, slow = Echo(), Echo()
    batcher.paces[quick], batcher.paces[slow] = Pace(1e6, 1.0), Pace(1000.0, 1.0)
    batcher.max_wait = 60.0
    submit(batcher, quick, [item(1, size=1000) for _ in range(100)])
    submit(batcher, slow, [item(1, size=1000) for _ in range(30)])
    assert batcher.waiting_tokens == 130_000
    with pytest.raises(OverloadedError) as refused:  # 40 seconds of its own, and 30 before it
        submit(batcher, slow, [item(1, size=1000) for _ in range(40)])
    assert refused.value.retry_after == pytest.approx(30.0, abs=0.1)
    submit(batcher, quick, [item(1, size=1000) for _ in range(20)])
    busy.opened.set()


def test_a_full_queue_refuses_before_anything_is_done(batcher, busy):
    batcher.speed, batcher.max_wait = 100.0, 2.0
    batcher.refuse_if_full()
    room = batcher.budget // 256
    for _ in range(room):
        batcher.refuse_if_full()
        submit(batcher, Echo(), [item(1, size=256)])
    with pytest.raises(OverloadedError) as refused:
        batcher.refuse_if_full()
    assert refused.value.retry_after == pytest.approx(2.56 * room)
    busy.opened.set()


def test_speed_is_judged_from_batch_to_batch_of_a_worker_that_never_waits(batcher):
    gate, program = Gate(), Echo()
    submit(batcher, Echo(gate), [item(1)])
    assert gate.reached.wait(SECONDS)
    batcher.paces[program] = Pace(100.0, 0.1)
    callers = [submit(batcher, program, [item(2, size=batcher.budget)]) for _ in range(5)]
    gate.opened.set()
    for caller in callers:
        caller.answer()
    pressed = batcher.paces[program]
    assert pressed.tokens > batcher.budget, "five batches one after the other say how fast it is"
    until(lambda: batcher._changed._waiters)  # the worker has gone to sleep
    submit(batcher, program, [item(2, size=batcher.budget)]).answer()
    assert batcher.paces[program] == pressed, "a request that comes alone says nothing of the speed under pressure"


def test_who_goes_away_is_taken_out_of_the_queue(batcher, busy):
    program = Echo()

    async def leave() -> None:
        tasks = [asyncio.create_task(batcher.run(program, [item(5, size=100) for _ in range(10)]))]
        await asyncio.sleep(0)
        assert batcher.waiting_tokens == 1000
        tasks[0].cancel()
        await asyncio.wait(tasks)

    asyncio.run(leave())
    assert batcher.waiting_tokens == 0
    busy.opened.set()
    submit(batcher, program, [item(6)]).answer()
    assert [int(row[0]) for batch in program.batches for row in batch] == [6]


def test_the_queue_is_bounded_and_an_empty_one_takes_anything(batcher, busy):
    batcher.speed, batcher.max_wait = 1000.0, 2.0
    first = submit(batcher, Echo(), [item(1, size=1000) for _ in range(5)])
    assert batcher.waiting_tokens == 5000
    with pytest.raises(OverloadedError) as refused:
        submit(batcher, Echo(), [item(2, size=1000) for _ in range(5)])
    assert refused.value.retry_after == pytest.approx(5.0)
    short = submit(batcher, Echo(), [item(2)])  # waits for a turn of the large one, not for all of it
    batcher.max_tokens = 0
    with pytest.raises(OverloadedError):
        submit(batcher, Echo(), [item(2)])  # all together there is a bound too
    busy.opened.set()
    first.answer()
    short.answer()
    assert same(submit(batcher, Echo(), [item(3)]).answer(), [item(3)])


def test_close_finishes_what_was_taken_and_refuses_the_rest(batcher, busy):
    items = [item(1, size=1000) for _ in range(5)]
    taken = submit(batcher, Echo(), items)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    until(lambda: batcher._closing)
    with pytest.raises(ClosedError):
        submit(batcher, Echo(), [item(2)])
    assert closing.is_alive()
    busy.opened.set()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert same(taken.answer(), items)


SIZES = st.lists(st.integers(1, 2000), min_size=1, max_size=8)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 2), SIZES),
    st.tuples(st.sampled_from(["give up", "take", "deliver", "fail"]), st.integers(0, 20)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_tokens_are_counted_right_whatever_happens(steps):
    """Step by step, without threads: submits, batches that come and go in any order, callers who leave."""
    batcher = Batcher(workers=64, max_wait=1000.0)  # none is started: batches are taken by hand
    batcher.speed = 1e6
    programs = [Echo() for _ in range(3)]
    requests: list[tuple[Any, Caller, list[Item]]] = []
    left: dict[int, int] = {}  # who left, and how many answers there were by then
    under_way: list[Any] = []

    def deliver(number: int, failing: bool = False) -> None:
        _, chosen = under_way.pop(number % len(under_way))
        outputs = RuntimeError() if failing else [request.items[place].ids[0] for request, place in chosen]
        batcher._deliver(chosen, outputs)

    def take() -> None:
        program, chosen, _ = batcher._next_batch()
        sizes = [request.items[place].num_tokens for request, place in chosen]
        assert chosen
        assert sum(sizes) <= batcher.budget or len(sizes) == 1
        assert all(request.program is program for request, _ in chosen)
        under_way.append((program, chosen))

    for step in steps:
        if step[0] == "submit":
            caller, items = Caller(), [item(n, size=size) for n, size in enumerate(step[2])]
            requests.append((batcher.submit(programs[step[1]], items, caller), caller, items))
        elif step[0] == "give up" and requests:
            number = step[1] % len(requests)
            left.setdefault(number, len(requests[number][1].results))
            batcher.give_up(requests[number][0])
        elif step[0] == "take" and batcher._queue:
            take()
        elif step[0] in ("deliver", "fail") and under_way:
            deliver(step[1], step[0] == "fail")
        assert batcher.waiting_tokens == sum(
            item.num_tokens for one in batcher._queue for item in one.items[one.taken :]
        )
        assert all(request.taken < len(request.items) for request in batcher._queue)
    while batcher._queue:
        take()
    while under_way:
        deliver(0)
    assert batcher.waiting_tokens == 0
    for number, (_, caller, items) in enumerate(requests):
        assert len(caller.results) == left.get(number, 1)
        if caller.results and not isinstance(caller.results[0], BaseException):
            assert same(caller.results[0], items)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), SIZES, st.booleans()), max_size=40))
def test_every_request_is_answered_once_by_threads_too(asked):
    batcher = Batcher(workers=3, max_wait=1000.0)
    batcher.speed = 1e6
    batcher.start()
    programs = [Echo(), Echo()]
    callers = []
    for number, sizes, leaves in asked:
        caller, items = Caller(), [item(n, size=size) for n, size in enumerate(sizes)]
        request = batcher.submit(programs[number], items, caller)
        if leaves:
            batcher.give_up(request)
        callers.append((caller, items, leaves))
    batcher.close()
    assert batcher.waiting_tokens == 0
    for caller, items, leaves in callers:
        assert len(caller.results) == 1 or (leaves and not caller.results)
        assert all(same(result, items) for result in caller.results)
