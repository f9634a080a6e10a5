"""Inputs of any number through a program: in order, ahead, packed, in little memory, and what an error leaves."""

from __future__ import annotations

import random
import threading
from functools import partial

import numpy as np
import pytest
import torch

from bertsmith.errors import InputError
from bertsmith.infer import pipeline, programs
from bertsmith.infer.pipeline import run_program
from bertsmith.tasks import running
from bertsmith.tasks.classify import TextExample
from bertsmith.tasks.tables import NOWHERE
from bertsmith.tasks.task import Item
from finetuning.small_tasks import make_tokenizer
from twins import TINY, random_model


class Echo(programs._EachAlone):
    """A program without a model: an input is (number, length), a result its number. It remembers what it was given."""

    def __init__(self):
        self.chunks, self.threads, self.batches = [], [], []

    def encode(self, inputs):
        self.chunks.append(len(inputs))
        self.threads.append(threading.current_thread().name)
        return [Item((np.full(length, number, np.int32),), (np.zeros(length, np.int32),)) for number, length in inputs]

    def forward(self, batch):
        assert torch.is_inference_mode_enabled()
        self.batches.append(batch.lengths.tolist())
        return [ids[:1].numpy() for ids in batch.input_ids.split(batch.lengths.tolist())]

    def decode(self, inputs, items, outputs):
        return [int(output[0]) for output in outputs]


def inputs(count, seed=0, most=40):
    rng = random.Random(seed)
    return [(number, rng.randint(1, most)) for number in range(count)]


def counted(given, taken):
    """The same, one by one; `taken` gets what was asked for."""
    for one in given:
        taken.append(one)
        yield one


def no_threads_left():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("tokenise")]


def test_a_stream_of_20000_is_in_order_and_never_more_than_two_chunks_ahead(monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 1000)
    given, taken, program = inputs(20_000, most=8), [], Echo()
    stream = run_program(program, counted(given, taken))
    assert not taken  # nothing is read before somebody asks
    ahead = []
    for number, (one, result) in enumerate(stream):
        assert one == given[number]
        assert result == number
        ahead.append(len(taken) - number)
    assert len(ahead) == 20_000
    assert max(ahead) <= 2001  # the chunk in the model, the next, and one to see whether that is whole
    assert program.chunks == [1000] * 20
    assert no_threads_left()


@pytest.mark.parametrize("streams", [1, 3])
def test_batches_are_full_longest_first_and_the_order_is_that_of_the_input(monkeypatch, request, streams):
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(streams)
    monkeypatch.setattr(running, "_CPU_BUDGET", 100)
    given, program, told = inputs(500), Echo(), []
    found = list(run_program(program, given, progress=told.append))
    assert found == [(one, one[0]) for one in given]
    assert sum(told) == 500
    assert len(told) == len(program.batches)
    assert all(sum(lengths) <= 100 for lengths in program.batches)
    assert all(lengths == sorted(lengths, reverse=True) for lengths in program.batches)
    if streams == 1:
        flat = [length for lengths in program.batches for length in lengths]
        assert flat == sorted(flat, reverse=True)
        pairs = zip(program.batches, program.batches[1:], strict=False)
        assert all(sum(lengths) + following[0] > 100 for lengths, following in pairs)


def test_the_next_chunk_is_tokenised_while_one_is_in_the_model(monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)
    second = threading.Event()
    met = []

    class Slow(Echo):
        def encode(self, inputs):
            if inputs[0][0] == 10:
                second.set()
            return super().encode(inputs)

        def forward(self, batch):
            if int(batch.input_ids.min()) < 10:  # the first chunk waits in the model for the second
                met.append(second.wait(20))
            return super().forward(batch)

    program = Slow()
    assert len(list(run_program(program, inputs(30)))) == 30
    assert met
    assert all(met)
    assert all(name.startswith("tokenise") for name in program.threads)


def test_few_inputs_need_no_thread():
    program = Echo()
    assert len(list(run_program(program, inputs(30)))) == 30
    assert program.threads == [threading.current_thread().name]
    assert list(run_program(program, [])) == []


class Counted:
    """Something of which it is known how many there are, and how many there were at most."""

    live = most = 0

    def __init__(self, *values):
        self.values = values
        type(self).live += 1
        type(self).most = max(self.most, self.live)

    def __iter__(self):
        return iter(self.values)

    def __del__(self):
        type(self).live -= 1


def test_memory_does_not_grow_with_the_number_of_inputs(monkeypatch):
    """At most two chunks of inputs and one of results, at the end of a stream as at its beginning."""

    class In(Counted):
        live = most = 0

    class Out(Counted):
        live = most = 0

    class Telling(Echo):
        def decode(self, inputs, items, outputs):
            return [Out(number) for number in super().decode(inputs, items, outputs)]

    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 100)
    at_a_time = []
    for number, _ in enumerate(run_program(Telling(), (In(n, 2) for n in range(3000)))):
        if number % 100 == 50:
            at_a_time.append(In.live)
    assert len(at_a_time) == 30
    assert max(at_a_time) <= 202
    assert In.most <= 303  # for a moment a chunk is finished while the next begins and another is read
    assert Out.most <= 201


def test_long_inputs_come_in_smaller_chunks(monkeypatch):
    monkeypatch.setattr(programs, "_CHARACTERS_AT_ONCE", 100)
    sizes = []

    class Texts(Echo):
        def encode(self, inputs):
            sizes.append(len(inputs))
            return super().encode([(number, 3) for number in range(len(inputs))])

    def run(given):
        sizes.clear()
        assert [one for one, _ in run_program(Texts(), given)] == given
        return sizes

    assert run(["x" * 50] * 5) == [2, 2, 1]
    assert run([("x" * 20, "y" * 30)] * 5) == [2, 2, 1]
    assert run([[7] * 50] * 5) == [2, 2, 1]
    assert run(["x" * 1000] * 3) == [1, 1, 1]
    assert run([TextExample(NOWHERE, "x" * 50, "y" * 60, None)] * 3) == [1, 1, 1]
    assert run(["x"] * 99) == [99]


def test_rows_of_tokens_are_fewer_at_a_time_the_more_layers_there_are():
    model, tokenizer = random_model("encoder"), make_tokenizer()
    one, three = (programs.TokenProgram(model, tokenizer, 64, layers) for layers in ((-1,), (1, 2, 3)))
    assert one.characters_at_once * TINY.hidden_size * 4 <= 2**28  # bytes
    assert three.characters_at_once == one.characters_at_once // 3
    assert programs.EmbedProgram(model, tokenizer, 64).characters_at_once < one.characters_at_once


def test_what_is_read_together_is_never_apart(monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)

    class Documents(Echo):
        def reads_together(self, one, following):
            return one[0] // 7 == following[0] // 7

    program = Documents()
    assert len(list(run_program(program, inputs(70)))) == 70
    assert program.chunks == [14] * 5


@pytest.mark.parametrize("where", ["input", "encode", "forward", "decode"])
def test_an_error_comes_after_the_results_before_it_and_leaves_no_thread(monkeypatch, where):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)

    def broken():
        for one in inputs(100):
            if where == "input" and one[0] == 35:
                raise InputError("line 36")
            yield one

    class Failing(Echo):
        def encode(self, inputs):
            if where == "encode" and inputs[0][0] == 30:
                raise InputError("line 36")
            return super().encode(inputs)

        def forward(self, batch):
            if where == "forward" and 35 in batch.input_ids:
                raise InputError("line 36")
            return super().forward(batch)

        def decode(self, inputs, items, outputs):
            if where == "decode" and inputs[0][0] == 30:
                raise InputError("line 36")
            return super().decode(inputs, items, outputs)

    found = []
    with pytest.raises(InputError, match="line 36"):
        for _, result in run_program(Failing(), broken()):
            found.append(result)
    assert found == list(range(30))
    assert no_threads_left()


def test_who_stops_early_leaves_no_thread_and_reads_no_further(monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)
    taken = []
    stream = run_program(Echo(), counted(inputs(1000), taken))
    next(stream)
    stream.close()
    assert no_threads_left()
    assert len(taken) <= 31
