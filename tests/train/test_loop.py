"""The loop on a task that can be worked by hand: a line through made-up points."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bertsmith.errors import TrainingError
from bertsmith.train.checkpoint import Checkpoints, Progress, latest_checkpoint, load_checkpoint
from bertsmith.train.distributed import World
from bertsmith.train.loop import Cadence, Hooks, Loop, StepData
from bertsmith.train.optimizer import BertAdam
from bertsmith.train.signals import StopRequest, listening

ROWS, WIDTH = 12, 4
NEVER = Cadence(total=10**9, evaluate=10**9)


@dataclass
class Line:
    """Twelve points a step, which follow from the position; in parts of the given sizes."""

    sizes: tuple[int, ...] = (ROWS,)
    broken_at: int | None = None

    def step(self, number, position):
        place = position.get("place", 0)
        generator = torch.Generator().manual_seed(place)
        x = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
        y = x.sum(1, keepdim=True) + 0.1 * torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
        if number == self.broken_at:
            y[3] = float("nan")
        parts = list(zip(x.split(self.sizes), y.split(self.sizes), strict=True))
        counts = {"points": ROWS, "tokens": 2 * ROWS}
        return StepData(parts, counts, {"place": place + 7}, {"place": place})

    def losses(self, model, part, counts):
        x, y = part
        error = (model(x) - y).square().sum()
        return error / counts["points"], {"error": error}

    def means(self, sums, counts):
        return {"loss": sums["error"] / counts["points"]}


def make(work=None, *, kind="sgd", rate=0.05, clip=1e9, dropout=0.0, seed=0, world=None, **others):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Dropout(dropout), nn.Linear(WIDTH, 1)).double()
    made = {"sgd": torch.optim.SGD, "bert_adam": BertAdam}[kind](model.parameters(), lr=123.0)
    made.param_groups[0]["peak"] = rate
    settings = {"rate_at": lambda step: 1 / (step + 1), "clip": clip, "seed": seed, "world": world or World()}
    return Loop(work=work or Line(), model=model, forward=model, optimizers=[made], **{**settings, **others})


def weights(loop):
    return torch.cat([weight.detach().flatten() for weight in loop.model.parameters()])


def take(loop, steps, progress=None):
    """Some steps without anything around them."""
    progress, records = progress or Progress(), []
    for _ in range(steps):
        progress, record = loop.take_step(progress)
        records.append(record)
    return progress, records


def watched(evaluate=None, on_step=None):
    """Hooks that note what happened."""
    seen = {"steps": [], "records": [], "evaluations": []}

    def step(record, progress):
        seen["steps"].append(progress.step)
        seen["records"].append(replace(record, seconds=0.0))
        if on_step is not None:
            on_step(record, progress)

    def evaluation(figures, progress):
        seen["evaluations"].append((progress.step, figures["loss"], progress.best_step))

    return Hooks(evaluate, step, evaluation), seen


def by_hand(loop, place):
    """The gradient of the mean error over all points, and that error."""
    x, y = Line().step(0, {"place": place}).parts[0]
    linear = loop.model[1]
    loss = ((x @ linear.weight.t() + linear.bias) - y).square().sum() / ROWS
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(loop.model.parameters()))]), loss.item()


def test_a_step_follows_the_gradient_of_the_mean_over_all_points():
    loop = make(rate=0.05)
    before, (gradient, loss) = weights(loop), by_hand(loop, place=7)
    after, record = loop.take_step(Progress(step=4, tokens=100, seconds=1.0, position={"place": 7}))
    torch.testing.assert_close(weights(loop), before - 0.05 / 5 * gradient)
    assert record.figures["loss"] == pytest.approx(loss)
    assert record.norm == pytest.approx(gradient.norm().item())
    assert record.rate == pytest.approx(0.05 / 5)
    assert (record.step, record.log, record.counts) == (5, {"place": 7}, {"points": ROWS, "tokens": 2 * ROWS})
    assert (after.step, after.tokens, after.position) == (5, 100 + 2 * ROWS, {"place": 14})
    assert after.seconds == 1.0 + record.seconds > 1.0
    assert all(weight.grad is None for weight in loop.model.parameters())


@pytest.mark.parametrize("sizes", [(6, 6), (7, 1, 4), (1,) * ROWS, (0, 12)])
def test_parts_change_nothing(sizes):
    """However a step is cut to fit into memory, also unevenly."""
    one, many = make(Line()), make(Line(sizes))
    _, expected = take(one, 5)
    _, found = take(many, 5)
    torch.testing.assert_close(weights(many), weights(one), rtol=1e-12, atol=1e-14)
    assert [record.figures["loss"] for record in found] == pytest.approx([r.figures["loss"] for r in expected], 1e-12)
    assert [record.norm for record in found] == pytest.approx([r.norm for r in expected], 1e-12)


@dataclass(frozen=True)
class Twins(World):
    """Two processes with the same data, played by one: their gradients average to either's."""

    size: int = 2

    def sum(self, values):
        return [2 * value for value in values]


def test_processes_average_gradients_of_sums_over_all():
    """Each divides by the count of all, so what is averaged must be multiplied by their number."""
    alone, twin = make(), make(world=Twins())
    _, expected = take(alone, 4)
    progress, found = take(twin, 4)
    torch.testing.assert_close(weights(twin), weights(alone))
    assert [record.figures["loss"] for record in found] == pytest.approx([r.figures["loss"] for r in expected])
    assert progress.tokens == 2 * 4 * 2 * ROWS


def test_a_large_gradient_is_cut_to_its_direction_and_a_small_one_left():
    for clip in (0.1, 1e3):
        loop = make(clip=clip, rate=1.0)
        before, (gradient, _) = weights(loop), by_hand(loop, place=0)
        _, (record,) = take(loop, 1)
        assert record.norm == pytest.approx(gradient.norm().item())  # as it was
        moved = gradient * min(1.0, clip / gradient.norm().item())
        torch.testing.assert_close(weights(loop), before - moved, rtol=1e-5, atol=1e-8)


def test_the_norm_is_over_all_optimizers_and_each_group_has_its_own_peak():
    loop = make()
    first, second = (
        torch.optim.SGD([{"params": [weight], "peak": peak}], lr=0.0)
        for weight, peak in zip(loop.model.parameters(), (0.2, 0.4), strict=True)
    )
    loop.optimizers = [first, second]
    gradient, _ = by_hand(loop, place=0)
    _, record = loop.take_step(Progress(step=1))
    assert record.norm == pytest.approx(gradient.norm().item())
    assert [optimizer.param_groups[0]["lr"] for optimizer in (first, second)] == [0.1, 0.2]


@pytest.mark.parametrize("sizes", [(ROWS,), (2, 4, 6)])
def test_a_loss_that_is_not_finite_ends_the_run_before_it_spoils_the_weights(sizes):
    loop = make(Line(sizes, broken_at=3), kind="bert_adam")
    progress, _ = take(loop, 3)
    before = weights(loop)
    memory = [value.clone() for state in loop.optimizers[0].state.values() for value in state.values()]
    with pytest.raises(TrainingError, match=r"step 4.*learning rate"):
        loop.take_step(progress)
    assert torch.equal(weights(loop), before)
    after = [value for state in loop.optimizers[0].state.values() for value in state.values()]
    assert all(torch.equal(*pair) for pair in zip(memory, after, strict=True))


def test_dropout_follows_from_seed_step_and_process_alone():
    """So it is the same after a restart, and different everywhere else."""

    def drawn(seed=0, step=5, rank=0, before=0):
        loop = make(dropout=0.5, seed=seed, world=World(rank=rank), rate=0.0)
        torch.manual_seed(before)
        _, record = loop.take_step(Progress(step=step))
        return record.figures["loss"]

    assert drawn() == drawn(before=99)
    assert len({drawn(), drawn(seed=1), drawn(step=6), drawn(rank=1)}) == 4


def test_each_part_of_a_step_draws_its_own_dropout():
    x = torch.ones(1, 64, dtype=torch.float64)
    seen = []

    class Noise(Line):
        def step(self, number, position):
            return replace(super().step(number, position), parts=[x, x])

        def losses(self, model, part, counts):
            seen.append(model[0](part))
            return model[1](part[:, :WIDTH]).sum(), {"error": part.sum()}

    take(make(Noise(), dropout=0.5), 1)
    assert not torch.equal(*seen)


def test_evaluations_come_in_time_and_at_the_end(tmp_path):
    """In evaluation mode and without gradients; the steps between them train."""
    loop = make(dropout=0.1)
    modes = []

    def evaluate():
        modes.append((loop.model.training, torch.is_grad_enabled()))
        return {"loss": 1.0}

    hooks, seen = watched(evaluate, lambda *_: modes.append((loop.model.training, torch.is_grad_enabled())))
    checkpoints = Checkpoints(tmp_path, World(), keep=1)
    loop.run(Progress(), Cadence(total=8, evaluate=3), checkpoints, hooks, StopRequest())
    assert seen["steps"] == list(range(1, 9))
    assert [step for step, _, _ in seen["evaluations"]] == [3, 6, 8]
    train, held_out = (True, True), (False, False)
    assert modes == [*[train] * 3, held_out, *[train] * 3, held_out, *[train] * 2, held_out]


def test_the_best_evaluation_is_remembered_and_kept(tmp_path):
    losses = iter([5.0, 3.0, 4.0, 3.0, float("nan")])
    hooks, seen = watched(lambda: {"loss": next(losses)})
    loop = make()
    kept = []

    class Noting(Checkpoints):
        def save(self, model, optimizers, progress, *, best=False):
            super().save(model, optimizers, progress, best=best)
            if best:
                kept.append((progress.step, weights(loop)))

    cadence = Cadence(total=10, evaluate=2, checkpoint=1000)
    done = loop.run(Progress(), cadence, Noting(tmp_path, World(), keep=1), hooks, StopRequest())
    assert [best for _, _, best in seen["evaluations"]] == [2, 4, 4, 4, 4]
    assert (done.best_cost, done.best_step) == (3.0, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best-000004", "step-000010"]
    again = make(seed=5)
    stored = load_checkpoint(tmp_path / "best-000004", again.model, again.optimizers)
    assert (stored.step, stored.best_cost, stored.best_step) == (4, 3.0, 4)
    assert torch.equal(weights(again), dict(kept)[4])


def test_a_run_that_goes_on_knows_its_best(tmp_path):
    hooks, _ = watched(lambda: {"loss": 2.0})
    progress = Progress(step=4, best_cost=1.0, best_step=3)
    checkpoints = Checkpoints(tmp_path, World(), keep=1)
    done = make().run(progress, Cadence(total=6, evaluate=1), checkpoints, hooks, StopRequest())
    assert (done.best_cost, done.best_step) == (1.0, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000006"]


@pytest.mark.parametrize(
    ("cadence", "steps"),
    [
        (Cadence(total=7, evaluate=9, checkpoint=3), [3, 6, 7]),
        (Cadence(total=6, evaluate=9, checkpoint=3), [3, 6]),
        (Cadence(total=3, evaluate=9, checkpoint_minutes=0.0), [1, 2, 3]),
        (Cadence(total=3, evaluate=9, checkpoint_minutes=60.0), [3]),
    ],
)
def test_checkpoints_come_in_time_and_at_the_end(cadence, steps, tmp_path):
    hooks, _ = watched()
    checkpoints = Checkpoints(tmp_path, World(), keep=9)
    make().run(Progress(), cadence, checkpoints, hooks, StopRequest())
    assert [int(path.name[5:]) for path in sorted(tmp_path.iterdir())] == steps


def test_minutes_count_from_the_last_checkpoint(monkeypatch, tmp_path):
    """By a clock that goes on by twenty seconds a step."""
    loop, now = make(), [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr("bertsmith.train.loop.time", clock)

    def tick(*_):
        now[0] += 20.0

    hooks, _ = watched(on_step=tick)
    checkpoints = Checkpoints(tmp_path, World(), keep=9)
    loop.run(Progress(), Cadence(total=10, evaluate=99, checkpoint_minutes=1.0), checkpoints, hooks, StopRequest())
    assert [int(path.name[5:]) for path in sorted(tmp_path.iterdir())] == [3, 6, 9, 10]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_saves_and_stops_after_the_step(number, tmp_path):
    hooks, seen = watched(
        on_step=lambda _, progress: os.kill(os.getpid(), number) if progress.step == 4 else None,
    )
    loop = make()
    with listening() as stop:
        done = loop.run(Progress(), NEVER, Checkpoints(tmp_path, World(), keep=2), hooks, stop)
    assert done.step == seen["steps"][-1] == 4
    again = make(seed=3)
    assert load_checkpoint(latest_checkpoint(tmp_path), again.model, again.optimizers) == done
    assert torch.equal(weights(again), weights(loop))


def test_a_run_at_its_end_does_nothing(tmp_path):
    hooks, seen = watched(lambda: {"loss": 1.0})
    progress = Progress(step=5)
    assert make().run(progress, Cadence(5, 1), Checkpoints(tmp_path, World(), keep=1), hooks, StopRequest()) == progress
    assert not seen["steps"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stops", [(1,), (4,), (2, 3, 7)])
def test_a_run_that_was_stopped_is_the_run_that_was_not_bit_for_bit(stops, tmp_path):
    """Weights, records and the best evaluation, with dropout, a schedule and an optimizer that remembers."""

    def evaluation_of(loop):
        return lambda: {"loss": float(weights(loop).square().sum())}

    def go(folder, progress, loop, until):
        hooks, seen = watched(evaluation_of(loop))
        stop = StopRequest()
        inner = hooks.on_step

        def on_step(record, now):
            inner(record, now)
            if now.step == until:
                stop.receive(signal.SIGTERM, None)

        hooks = replace(hooks, on_step=on_step)
        checkpoints = Checkpoints(folder, World(), keep=1)
        return loop.run(progress, Cadence(10, 2, checkpoint=1000), checkpoints, hooks, stop), seen

    def fresh():
        return make(Line((5, 7)), kind="bert_adam", dropout=0.3)

    whole = fresh()
    done, expected = go(tmp_path / "whole", Progress(), whole, until=None)
    records, evaluations = [], []
    for until in (*stops, None):
        part, progress = fresh(), Progress()
        latest = latest_checkpoint(tmp_path / "parts")
        if latest is not None:
            progress = load_checkpoint(latest, part.model, part.optimizers)
        progress, seen = go(tmp_path / "parts", progress, part, until)
        records += seen["records"]
        evaluations += seen["evaluations"]
    assert torch.equal(weights(part), weights(whole))
    assert records == expected["records"]
    assert evaluations == expected["evaluations"]
    assert replace(progress, seconds=0) == replace(done, seconds=0)


def test_autocast_reaches_the_model():
    seen = []

    class Looking(Line):
        def losses(self, model, part, counts):
            x, _ = part
            seen.append(model(x.float()).dtype)
            return super().losses(model, (x.float(), part[1].float()), counts)

    for autocast in (None, torch.bfloat16):
        loop = make(Looking(), autocast=autocast)
        loop.model.float()
        take(loop, 1)
    assert seen == [torch.float32, torch.bfloat16]
