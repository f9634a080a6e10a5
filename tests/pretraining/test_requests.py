"""What a run is asked to be: from a command line, from config.json, again with --resume; and what is refused."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.errors import ConfigError, InputError, ModelNotFoundError, ShardError, TokenizerError
from bertsmith.jobs.pretrain import make_request, pretrain
from bertsmith.model.heads import build
from bertsmith.pretraining.recipes import modern
from bertsmith.pretraining.request import read_request
from bertsmith.pretraining.settings import Budget
from bertsmith.train.request import take_up, write_request
from pretraining.small_runs import PIECES, SHAPE, SMALL, Watcher, build_data, make_tokenizer, read_lines, write_model


class StopsAt(Watcher):
    """Sends this process a signal after a step, as a scheduler would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.at = step

    def on_step(self, values, progress, total) -> None:
        super().on_step(values, progress, total)
        if progress.step == self.at:
            signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": "tiny", "start": "minilm"}, "--size and --from exclude each other"),
        ({"size": "huge"}, "size: 'huge' is not one of tiny, mini"),
        ({"recipe": "old"}, "recipe: 'old' is not one of faithful, modern"),
    ],
)
def test_what_cannot_be_asked_for(given, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        make_request(tmp_path, **given)


def test_a_file_changes_the_recipe_and_single_changes_the_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("optimizer: {rate: 3e-4, eps: 1.0e-8}\npairs: sop\nphases: 32:0.5,64:0.5\n", encoding="utf-8")
    settings = make_request(tmp_path, config=file, changes={"optimizer.eps": "1e-7"}).settings
    assert (settings.optimizer.rate, settings.optimizer.eps) == (3e-4, 1e-7)
    assert settings.pairs == "sop"
    assert settings.phases[1].max_length == 64
    assert settings.schedule == modern().schedule


@pytest.mark.parametrize("phases", ["32:1", "32:1.0", "'32:1'"])
def test_phases_in_a_file_need_no_quotes(phases, tmp_path):
    """To YAML 1.1 the first two are numbers to the base of 60."""
    file = tmp_path / "run.yaml"
    file.write_text(f"phases: {phases}\n", encoding="utf-8")
    (phase,) = make_request(tmp_path, config=file).settings.phases
    assert (phase.max_length, phase.share) == (32, 1.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "expected names and values"),
        ("- 1\n", "expected names and values, found list"),
        ("a: [", "not valid YAML"),
        ("1: 2\n", "1: there is no such setting"),
        ("optimizer: {rote: 1}\n", r"optimizer\.rote"),
        ("phases: 128\n", r"phases: expected LENGTH:SHARE"),
        (None, "cannot be read"),
        (b"\xff\xfe\xfa", "cannot be read"),
    ],
)
def test_a_file_of_settings_that_is_wrong(content, words, tmp_path):
    file = tmp_path / "run.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words) as caught:
        make_request(tmp_path, config=file)
    assert "\n" not in str(caught.value)


def test_paths_are_kept_whole_so_that_a_run_can_go_on_from_elsewhere(data, model, tmp_path, monkeypatch):
    monkeypatch.chdir(model.parent)
    request = make_request(data, start=model.name)
    assert request.start == str(model)
    monkeypatch.chdir(data.parent)
    assert make_request(data.relative_to(data.parent), start=str(model)) == request
    assert make_request(data, start="a-name-of-the-hub").start == "a-name-of-the-hub"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.pop("settings"), "settings"),
        (lambda content: content.update(colour="red"), "colour"),
        (lambda content: content["settings"].update(colour="red"), "colour"),
        (lambda content: content["settings"]["optimizer"].update(rate=-1), r"optimizer\.rate"),
        (lambda content: content.update(budget={"steps": 1, "tokens": 1}), "steps and tokens"),
    ],
)
def test_a_config_json_that_was_changed_for_the_worse_is_named(change, words, tmp_path):
    write_request(tmp_path, make_request(tmp_path, size="tiny"))
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    change(content)
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"config\.json: .*{words}"):
        read_request(tmp_path)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"size": "mini"}, "size"),
        ({"recipe": "faithful"}, "recipe"),
        ({"budget": Budget(steps=6)}, "steps"),
        ({"changes": {"seed": 1}}, "seed"),
        ({"changes": {"batch.tokens": 99}}, "batch.tokens"),
        ({"changes": {"evaluation.every": 3}}, "evaluation.every"),
    ],
)
def test_a_run_is_not_taken_up_with_what_would_change_it(given, name, tmp_path):
    usual = {"size": "tiny", "budget": Budget(steps=5)}
    with pytest.raises(InputError, match=f"^{name}: the run was begun with .*; go on with --resume and the set"):
        take_up(make_request(tmp_path, **{**usual, **given}), make_request(tmp_path, **usual))


def test_going_on_with_a_model_is_done_at_a_lower_rate(tmp_path):
    for recipe, rates in (("faithful", (1e-4, 2e-5)), ("modern", (2e-3, 2e-4))):
        asked = [make_request(tmp_path, recipe=recipe, **of) for of in ({"size": "tiny"}, {"start": "minilm"})]
        assert tuple(request.settings.optimizer.rate for request in asked) == rates
    own = make_request(tmp_path, start="minilm", changes={"optimizer.rate": 1e-3})
    assert own.settings.optimizer.rate == 1e-3


def test_a_run_is_taken_up_with_what_changes_no_result(tmp_path):
    stored = replace(make_request(tmp_path, size="tiny"), total=77)
    assert take_up(make_request(tmp_path, size="tiny"), stored) == stored
    free = {"checkpoint.every": 3, "batch.part": 99, "compile": True, "spread": "fsdp"}
    taken = take_up(make_request(tmp_path, size="tiny", changes=free), stored)
    assert taken.total == 77
    assert taken.settings.checkpoint.every == 3
    assert taken.settings.batch.part == 99
    assert taken.settings.compile
    assert taken.settings.batch.tokens == stored.settings.batch.tokens


def test_an_existing_folder_is_refused(ask, tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="exists already; go on with --resume, or name a new folder"):
        pretrain(ask(), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_resuming_nothing_begins_and_says_so(ask, tmp_path):
    watcher = Watcher()
    result = pretrain(ask(2), tmp_path / "run", resume=True, observer=watcher)
    assert result.progress.step == 2
    assert "nothing to resume, so a new run begins" in watcher.notes[0]
    with pytest.raises(InputError, match="nothing to resume, and no --shards"):
        pretrain(None, tmp_path / "other", resume=True)


def test_resuming_with_other_settings_is_refused_and_says_which(ask, tmp_path):
    first = pretrain(ask(6), tmp_path / "run", observer=StopsAt(2))
    assert (first.progress.step, first.stopped_by, first.model) == (2, "SIGUSR1", None)
    for request, name in ((ask(7), "steps"), (ask(6, seed=1), "seed")):
        with pytest.raises(
            InputError,
            match=rf"^{name}: the run was begun with .*; go on with --resume and the set",
        ):
            pretrain(request, tmp_path / "run", resume=True)
    watcher = Watcher()
    assert pretrain(ask(6), tmp_path / "run", resume=True, observer=watcher).progress.step == 6
    assert watcher.notes == ["going on from step 2"]


def test_resuming_a_run_that_is_at_its_end_changes_nothing(ask, tmp_path):
    pretrain(ask(4), tmp_path / "run")
    names = ("metrics.jsonl", "examples.jsonl", "model/model.safetensors", "config.json")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]
    result = pretrain(None, tmp_path / "run", resume=True)
    assert result.model == tmp_path / "run" / "model"
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == before


def test_a_new_beginning_does_not_repeat_the_first_evaluation_in_the_log(ask, tmp_path):
    """A run that died before its first checkpoint begins again at step 0; the log has that evaluation once."""

    class Dies(Watcher):
        def on_step(self, values, progress, total):
            if progress.step == 2:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        pretrain(ask(4), tmp_path / "run", observer=Dies())
    assert [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "eval"] == [0]
    pretrain(None, tmp_path / "run", resume=True)
    log = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in log if line["kind"] == "eval"] == [0, 4]
    assert [line["step"] for line in log if line["kind"] == "train"] == [1, 2, 3, 4]
    assert [line["step"] for line in read_lines(tmp_path / "run" / "examples.jsonl")] == [1, 2, 3, 4]


def test_a_budget_in_minutes_fixes_the_steps_once(ask, tmp_path, monkeypatch):
    from bertsmith.pretraining import run

    monkeypatch.setattr(run, "_REHEARSED_SECONDS", 0.0)
    request = ask(budget=Budget(minutes=0.01))
    first = pretrain(request, tmp_path / "run", observer=StopsAt(2))
    total = first.plan.steps
    assert total > 2
    assert read_request(tmp_path / "run").total == total
    monkeypatch.setattr(run.PretrainingRun, "_rehearse", lambda self: pytest.fail("measured again"))
    second = pretrain(request, tmp_path / "run", resume=True)
    assert (second.plan.steps, second.progress.step) == (total, total)


def test_going_on_with_a_model_starts_from_its_loss(ask, data, model, tmp_path):
    """A model that has learned a little, as the start of another run: its first evaluation is the other's last."""
    first = pretrain(ask(60, optimizer__rate=0.01, optimizer__kind="adamw", word_bias="zero"), tmp_path / "first")
    changes = {**SMALL, "optimizer.rate": 1e-5}
    request = make_request(data, start=str(tmp_path / "first"), budget=Budget(steps=2), changes=changes)
    pretrain(request, tmp_path / "second")
    losses = [line["loss"] for line in read_lines(tmp_path / "second" / "metrics.jsonl") if line["kind"] == "eval"]
    fresh = read_lines(tmp_path / "first" / "metrics.jsonl")[0]["loss"]
    assert losses[0] == pytest.approx(first.figures["loss"], abs=1e-6)
    assert losses[0] < fresh - 0.1


def test_a_model_without_a_pair_head_gets_a_new_one(data, tmp_path):
    start = write_model(tmp_path / "mlm", "mlm")
    request = make_request(data, start=str(start), budget=Budget(steps=2), changes=SMALL)
    assert "pair_loss" in pretrain(request, tmp_path / "run").figures


@pytest.mark.parametrize(
    ("positions", "phases"), [(64, [(64, 1.0)]), (128, [(128, 1.0)]), (512, [(128, 0.9), (512, 0.1)])]
)
def test_phases_that_nobody_asked_for_are_those_that_a_model_has_positions_for(data, tmp_path, positions, phases):
    config = SHAPE.derive(max_position_embeddings=positions)
    write_bundle(tmp_path / "model", Bundle(build(config, "mlm"), make_tokenizer(), positions), source="a test")
    made = make_request(data, start=str(tmp_path / "model")).settings.phases
    assert [(phase.max_length, pytest.approx(phase.share)) for phase in made] == phases
    asked = make_request(data, start=str(tmp_path / "model"), changes={"phases": "32:1"}).settings.phases
    assert [phase.max_length for phase in asked] == [32]
    asked = make_request(data, start=str(tmp_path / "model"), changes={"phases": "128:0.9,512:0.1"}).settings.phases
    assert [phase.max_length for phase in asked] == [128, 512]  # as it was said, and refused later where it cannot be


def test_a_model_with_another_tokenizer_is_refused(ask, tmp_path):
    other = make_tokenizer([*PIECES[:-1], "##er"])
    foreign = build_data(tmp_path, tokenizer=other)
    request = ask(shards=foreign)
    with pytest.raises(TokenizerError, match=r"not made with the tokenizer of .*; build the shards again with --token"):
        pretrain(request, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"start": "no such model"}, ModelNotFoundError, "no such model"),
        (
            {"changes": {"phases": "128:1"}},
            ConfigError,
            "length 128 is beyond the model's 64 positions; take --phases 64:1",
        ),
        (
            {"changes": {"batch.tokens": 20}},
            ConfigError,
            r"batch\.tokens: 20 are not one example of length 32; .*--batch-tokens",
        ),
        ({"shards": "absent"}, ShardError, "absent"),
    ],
)
def test_what_does_not_go_together_leaves_no_folder(given, error, words, data, model, tmp_path):
    changes = {**SMALL, **given.pop("changes", {})}
    shards = tmp_path / given.pop("shards") if "shards" in given else data
    request = make_request(shards, budget=Budget(steps=2), changes=changes, **{"start": str(model), **given})
    with pytest.raises(error, match=words):
        pretrain(request, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_document_is_an_error_that_says_what_to_do(model, tmp_path):
    one = build_data(tmp_path, ["bar ban bal.\nbap bas bat."], holdout=0.0)
    changes = {**SMALL, "phases": "32:1"}
    request = make_request(one, start=str(model), budget=Budget(steps=2), changes=changes)
    with pytest.raises(InputError, match=r"one document.* divide the text .* or train without pairs \(--pairs none\)"):
        pretrain(request, tmp_path / "run")
    alone = make_request(one, start=str(model), budget=Budget(steps=2), changes={**changes, "pairs": "none"})
    assert pretrain(alone, tmp_path / "run").progress.step == 2


def test_the_shape_of_a_new_model_is_that_of_its_size_and_vocabulary(data, tmp_path):
    request = make_request(data, size="tiny", budget=Budget(steps=1), changes={"phases": "32:1", "batch.tokens": 64})
    result = pretrain(request, tmp_path / "run")
    config = json.loads((result.model / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_size"], config["num_hidden_layers"]) == (128, 2)
    assert config["vocab_size"] == SHAPE.vocab_size
