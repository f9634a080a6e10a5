"""The data of a step: the next examples, each once an epoch, and the same batch for any number of processes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from bertsmith.config import named_size
from bertsmith.errors import ConfigError
from bertsmith.model.heads import build
from bertsmith.model.initial import continued_positions
from bertsmith.model.operations import pretraining_operations
from bertsmith.pretraining.recipes import modern
from bertsmith.pretraining.work import Objective, PretrainingWork, TensorBatch, count_parts, figures_of
from bertsmith.settings import changed
from bertsmith.train.distributed import World
from pretraining.small_runs import SHAPE

NAMES = ("tokens", "examples", "masked", "maskable", "pairs")


@pytest.fixture
def make(splits, tokenizer):
    """The work of one process of a small run."""

    def work(*, rank=0, size=1, total=40, **changes):
        chosen = {"phases": "32:1", "batch.tokens": 256, **{n.replace("__", "."): v for n, v in changes.items()}}
        settings = changed(modern(), chosen)
        return PretrainingWork(splits[0], tokenizer, settings, SHAPE, total, World(rank, size))

    return work


def walk(work, count):
    """The data of the first steps, one after the other."""
    position, steps = {}, []
    for number in range(count):
        steps.append(work.step(number, position))
        position = steps[-1].position
    return steps


def joined(parts):
    """Parts as one batch, with positions counted from its beginning; those of weight 0 are left out."""
    parts = [part for part in parts if part.weight]
    ids, types, lengths, positions, labels, pairs = zip(*(part.tensors for part in parts), strict=True)
    starts = torch.tensor([0, *(len(each) for each in ids)]).cumsum(0)[:-1]
    shifted = [each + start for each, start in zip(positions, starts, strict=True)]
    return [torch.cat(columns).tolist() for columns in (ids, types, lengths, shifted, labels, pairs)]


def test_steps_read_the_next_examples_and_each_of_them_once_an_epoch(make):
    work = make()
    logs = [data.log for data in walk(work, 3 * work.epochs()[0].batches)]
    for before, after in pairwise(logs):
        if before["epoch"] == after["epoch"]:
            assert after["first"] == before["stop"]
        else:
            assert (after["epoch"], after["first"]) == (before["epoch"] + 1, 0)
    first = [log for log in logs if log["epoch"] == 0]
    assert len(first) == work.epochs()[0].batches
    assert first[0]["first"] == 0
    assert first[-1]["stop"] == len(work._streams[0].examples.plan(0))
    assert {log["epoch"] for log in logs} >= {0, 1, 2}


def test_more_processes_than_examples_share_a_batch(make):
    """Those that have none keep in step with one that counts nothing."""
    whole = make().step(0, {})
    shares = [make(rank=rank, size=64).step(0, {}) for rank in range(64)]
    assert {len(share.parts) for share in shares} == {1}
    assert sum(part.weight == 0 for share in shares for part in share.parts) > 0
    for name in NAMES:
        assert sum(share.counts[name] for share in shares) == whole.counts[name]


def test_a_step_depends_on_its_number_and_position_only(make):
    work = make(phases="32:0.5,64:0.5", first_rate=0.3)
    steps = walk(work, 20)
    for number in (0, 19, 7, 13):
        position = steps[number - 1].position if number else {}
        again = make(phases="32:0.5,64:0.5", first_rate=0.3).step(number, position)
        assert joined(again.parts) == joined(steps[number].parts)
        assert (again.counts, again.position, again.log) == (
            steps[number].counts,
            steps[number].position,
            steps[number].log,
        )


def test_a_new_phase_has_its_length_at_its_step_and_a_new_epoch(make):
    steps = walk(make(phases="16:0.5,32:0.25:512,64:0.25", total=8), 8)
    assert [data.log["max_length"] for data in steps] == [16, 16, 16, 16, 32, 32, 64, 64]
    assert [data.position["phase"] for data in steps] == [0, 0, 0, 0, 1, 1, 2, 2]
    for number in (4, 6):
        assert steps[number].log["epoch"] > steps[number - 1].log["epoch"]
        assert steps[number].log["first"] == 0
    for data in steps:
        assert max(joined(data.parts)[2]) <= data.log["max_length"]
    assert all(abs(steps[number].counts["tokens"] - 512) <= 32 for number in (4, 5))
    assert all(abs(steps[number].counts["tokens"] - 256) <= 64 for number in (0, 1, 2, 3, 6, 7))


def test_a_phase_too_short_for_a_step_is_passed_over(make):
    (only,) = walk(make(phases="16:0.1,32:0.9", total=1), 1)
    assert only.log == {"max_length": 32, "epoch": 0, "first": 0, "stop": only.log["stop"]}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("part", [16, 40, 100, 16384])
@pytest.mark.parametrize("pairs", ["balanced", "none"])
def test_the_parts_of_all_processes_are_the_batch_of_one(make, size, part, pairs):
    whole = walk(make(pairs=pairs), 6)
    shares = [walk(make(rank=rank, size=size, pairs=pairs, batch__part=part), 6) for rank in range(size)]
    for step, data in enumerate(whole):
        of_ranks = [share[step] for share in shares]
        assert joined([each for rank in of_ranks for each in rank.parts]) == joined(data.parts)
        assert len({len(rank.parts) for rank in of_ranks}) == 1, "gradients are summed after the last part of each"
        for name in (*NAMES, "operations"):
            assert sum(rank.counts[name] for rank in of_ranks) == data.counts[name]
        assert all(rank.position == data.position for rank in of_ranks)
        assert all(rank.log == data.log for rank in of_ranks)
        for rank in of_ranks:
            assert all(len(each.tensors[0]) <= part + 32 or len(each.tensors[2]) == 1 for each in rank.parts)


def test_a_share_without_examples_has_weight_zero_and_counts_nothing(make):
    """Fewer examples than shares: someone has none, and takes part in the step with one that does not count."""
    works = [make(rank=rank, size=2, batch__tokens=64, batch__part=8) for rank in range(2)]
    steps = [work.step(0, {}) for work in works]
    empty = [part for data in steps for part in data.parts if part.weight == 0.0]
    assert empty
    assert count_parts(empty) == dict.fromkeys(NAMES, 0)
    objective = Objective(build(SHAPE, "pretraining", seed=1))
    loss, sums = works[0].losses(objective, empty[0], {"masked": 5, "pairs": 2})
    loss.backward()
    assert loss.item() == 0.0
    assert all(value.item() == 0.0 for value in sums.values())
    gradients = [weight.grad for weight in objective.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_losses_are_sums_over_the_counts_of_the_whole_batch(make):
    """However a batch is cut, the losses of its parts add up to that of the whole, and so do their gradients."""
    objective = Objective(build(SHAPE, "pretraining", seed=1)).eval()
    whole = make().step(0, {})
    scores = objective(*whole.parts[0].tensors)
    expected = scores.mlm_loss / whole.counts["masked"] + scores.pair_loss / whole.counts["pairs"]
    loss, sums = make().losses(objective, whole.parts[0], whole.counts)
    assert loss.item() == pytest.approx(expected.item())
    assert {name: value.item() for name, value in sums.items()} == {
        name: value.item() for name, value in scores._asdict().items()
    }
    loss.backward()
    wanted = {name: weight.grad.clone() for name, weight in objective.named_parameters()}
    objective.zero_grad()
    total = 0.0
    for rank in range(3):
        work = make(rank=rank, size=3, batch__part=30)
        for part in work.step(0, {}).parts:
            loss, _ = work.losses(objective, part, whole.counts)
            loss.backward()
            total += loss.item()
    assert total == pytest.approx(expected.item(), rel=1e-5)
    for name, weight in objective.named_parameters():
        assert torch.allclose(weight.grad, wanted[name], atol=1e-6), name


def test_counts_by_hand():
    """Two examples with pairs (three special tokens each), then one without (two)."""
    two = TensorBatch(
        (
            torch.zeros(17),
            torch.zeros(17),
            torch.tensor([10, 7]),
            torch.tensor([1, 4, 12]),
            torch.zeros(3),
            torch.ones(2),
        )
    )
    one = TensorBatch(
        (torch.zeros(9), torch.zeros(9), torch.tensor([9]), torch.tensor([2]), torch.zeros(1), torch.zeros(0))
    )
    assert count_parts([two]) == {"tokens": 17, "examples": 2, "masked": 3, "maskable": 11, "pairs": 2}
    assert count_parts([one]) == {"tokens": 9, "examples": 1, "masked": 1, "maskable": 7, "pairs": 0}
    assert count_parts([two, one])["tokens"] == 26


def test_figures_by_hand():
    sums = {"mlm_loss": 20.0, "mlm_correct": 4.0, "pair_loss": 3.0, "pair_correct": 5.0}
    counts = {"masked": 10, "maskable": 50, "pairs": 6, "tokens": 60, "examples": 6}
    assert figures_of(sums, counts) == pytest.approx(
        {
            "loss": 2.5,
            "mlm_loss": 2.0,
            "mlm_accuracy": 0.4,
            "perplexity": math.exp(2.0),
            "masked_share": 0.2,
            "pair_loss": 0.5,
            "pair_accuracy": 5 / 6,
        }
    )
    alone = figures_of({**sums, "pair_loss": 0.0}, {**counts, "pairs": 0})
    assert alone["loss"] == 2.0
    assert "pair_loss" not in alone
    assert "pair_accuracy" not in alone
    nothing = figures_of(dict.fromkeys(sums, 0.0), dict.fromkeys(counts, 0))
    assert nothing["loss"] == 0.0
    assert math.isfinite(figures_of({**sums, "mlm_loss": 1e9}, counts)["perplexity"])


def test_operations_are_those_of_each_sequence_and_its_masks(make):
    data = make().step(0, {})
    _, _, lengths, positions, _, _ = joined(data.parts)
    ends = torch.tensor(lengths).cumsum(0).tolist()
    masked = [sum(end - length <= p < end for p in positions) for length, end in zip(lengths, ends, strict=True)]
    assert data.counts["operations"] == pretraining_operations(SHAPE, lengths, masked)


def test_the_share_of_masks_follows_its_schedule(make):
    work = make(first_rate=0.5, masking__rate=0.1, batch__tokens=2000, total=3)
    shares = [data.counts["masked"] / data.counts["maskable"] for data in walk(work, 3)]
    assert shares == pytest.approx([0.5, 0.3, 0.1], abs=0.02)


def test_static_copies_come_back_and_dynamic_ones_do_not(make):
    def seen(**changes):
        work = make(batch__tokens=100_000, **changes)  # an epoch a step
        return [tuple(joined(data.parts)[0]) for data in walk(work, 5)]

    static = seen(static_copies=2)
    assert static[0] == static[2] == static[4]
    assert static[1] == static[3] != static[0]
    assert len(set(seen())) == 5


@pytest.mark.parametrize(("size", "tokens", "fits"), [(1, 32, True), (1, 31, False), (3, 32, True), (3, 31, False)])
def test_a_batch_has_room_for_an_example(make, size, tokens, fits):
    if fits:
        assert make(size=size, batch__tokens=tokens).step(0, {}).parts
        return
    with pytest.raises(ConfigError, match=rf"batch\.tokens: {tokens} .* length 32;"):
        make(size=size, batch__tokens=tokens)
    with pytest.raises(ConfigError, match="length 64"):
        make(size=size, phases=f"32:0.5:9999,64:0.5:{tokens}")


def test_positions_go_on_only_from_lengths_that_were_trained(make):
    """A phase without a step has trained nothing; with the first of them, a rehearsal has none before it."""
    config = named_size("tiny", vocab_size=100)
    for phases, total, place, wanted in [
        ("16:0.5,32:0.5", 8, (4, 0), 16),
        ("16:0.5,32:0.5", 8, (5, 1), None),  # within the phase
        ("32:0.5,16:0.5", 8, (4, 0), None),  # shorter
        ("64:0.01,16:0.49,64:0.5", 8, (4, 1), 16),  # the first phase has no step
        ("16:0.01,32:0.99", 8, (0, 0), None),
        ("16:0.25,64:0.25,16:0.25,32:0.25", 8, (6, 2), None),
    ]:
        model = build(config, "pretraining", seed=0)
        before = model.encoder.embeddings.position.weight.detach().clone()
        make(phases=phases, total=total).continue_positions(model, place[0], {"phase": place[1]})
        expected = before if wanted is None else continued_positions(before, wanted)
        assert torch.equal(model.encoder.embeddings.position.weight, expected), phases
