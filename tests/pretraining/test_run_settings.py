"""Settings: what can be set, what is refused and by which name; recipes: what each of them stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.config import named_size
from bertsmith.errors import ConfigError
from bertsmith.pretraining.planning import Epoch, steps_for
from bertsmith.pretraining.recipes import RECIPES, faithful, modern
from bertsmith.pretraining.request import make_budget, make_request, read_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.pretraining.settings import Budget, Phase, Settings, parse_phases
from bertsmith.pretraining.work import PretrainingWork
from bertsmith.settings import changed
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World
from bertsmith.train.loop import Loop
from bertsmith.train.optimizer import BertAdam
from bertsmith.train.request import write_request
from pretraining.small_runs import SHAPE, Watcher, both_splits, build_data, make_documents


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 1}, "rate: there is no such setting; there are .*optimizer"),
        ({"optimizer.rote": 1}, r"optimizer\.rote: there is no such setting; there are .*rate"),
        ({"optimizer": {"rote": 1}}, r"optimizer\.rote"),
        ({"masking.rote": 1}, r"masking\.rote"),
        ({"masking": {"rote": 1}}, r"masking\.rote"),
        ({"nothing.rate": 1}, r"nothing\.rate: there is no such setting; there are .*optimizer"),
        ({"optimizer.rate.more": 1}, r"optimizer\.rate\.more"),
        ({"phases.0.share": 1}, r"phases\.0\.share"),
        ({"optimizer": {1: 2}}, r"optimizer\.1"),
        ({1: 2}, "1: there is no such setting"),
        ({"phases": [{"max_length": 32, "share": 1, "tokens": 5}]}, r"phases\.0\.tokens"),
    ],
)
def test_an_unknown_setting_is_refused_by_its_name(change, words):
    with pytest.raises(ConfigError, match=f"^{words}"):
        changed(Settings(), change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer.rate": "fast"}, r"optimizer\.rate: .*'fast'"),
        ({"optimizer.rate": "0"}, r"optimizer\.rate"),
        ({"optimizer.rate": ".inf"}, r"optimizer\.rate"),
        ({"optimizer.betas": "[0.9, 1.0]"}, r"optimizer\.betas"),
        ({"optimizer.kind": "sgd"}, r"optimizer\.kind"),
        ({"optimizer": "3"}, "optimizer"),
        ({"masking.rate": "1.5"}, r"masking\.rate"),
        ({"masking.kind": "words"}, r"masking\.kind"),
        ({"batch.tokens": "0"}, r"batch\.tokens"),
        ({"batch.tokens": "2.5"}, r"batch\.tokens"),
        ({"first_rate": "1"}, "first_rate"),
        ({"dropout": "1"}, "dropout"),
        ({"static_copies": "0"}, "static_copies"),
        ({"static_copies": "2", "first_rate": "0.3"}, "static_copies: fixed masks cannot follow first_rate"),
        ({"pairs": "no"}, "pairs"),
        ({"pairs": "{"}, "pairs: '{' is not a value that YAML can read"),
        ({"seed": "-1"}, "seed"),
        ({"seed": str(2**63)}, "seed"),
        ({"compile": "perhaps"}, "compile"),
    ],
)
def test_a_wrong_value_is_one_sentence_that_begins_with_its_name(change, words):
    with pytest.raises(ConfigError, match=f"^{words}") as caught:
        changed(Settings(), change)
    assert "\n" not in str(caught.value)


def test_changes_come_flat_or_nested_and_as_text_or_as_values():
    flat = changed(
        Settings(),
        {
            "optimizer.rate": "1e-3",  # YAML takes this for a text
            "optimizer.betas": "[0.8, 0.9]",
            "masking.kind": "span",
            "pairs": "none",
            "compile": "true",
            "checkpoint.every": "null",
            "first_rate": "0.3",
            "phases": "64:1",
        },
    )
    assert isinstance(flat.optimizer.rate, float)
    assert flat.optimizer.rate == 0.001
    assert flat.optimizer.betas == (0.8, 0.9)
    assert flat.compile is True
    nested = {
        "optimizer": {"rate": "1e-3", "betas": [0.8, 0.9]},
        "masking": {"kind": "span"},
        "pairs": "none",
        "compile": True,
        "first_rate": 0.3,
        "phases": [{"max_length": 64, "share": 1.0}],
    }
    assert changed(Settings(), nested) == flat


@pytest.mark.parametrize("change", [{"masking": {"rate": 0.3}}, {"masking": "{rate: 0.3}"}, {"masking.rate": "0.3"}])
def test_a_change_inside_a_part_leaves_the_rest_of_it_alone(change):
    masking = changed(faithful(), change).masking
    assert masking.rate == 0.3
    assert masking.faithful
    assert masking.kind == "piece"


def test_changing_leaves_what_it_was_given_alone():
    settings = Settings()
    changed(settings, {"optimizer.rate": 0.5, "masking": {"rate": 0.5}})
    assert settings == Settings()


def test_phases_in_the_short_form():
    made = changed(Settings(), {"phases": "128:0.5,256:0.25:9000,512:0.25"}).phases
    assert made == (
        Phase(max_length=128, share=0.5),
        Phase(max_length=256, share=0.25, batch_tokens=9000),
        Phase(max_length=512, share=0.25),
    )
    assert parse_phases([1]) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "128",
        "abc:0.5",
        "128:0.5",
        "128:0.9,512:0.2",
        "128:1:4096:7",
        "",
        "128:1,",
        "4:1",
        "128:0,512:1",
        "128:1:",
        ":1",
    ],
)
def test_phases_that_cannot_be_are_refused(text):
    with pytest.raises(ConfigError, match=r"^phases"):
        changed(Settings(), {"phases": text})


def test_phases_end_where_their_shares_say_and_the_last_at_the_end():
    settings = changed(Settings(), {"phases": "32:0.5,64:0.25,128:0.25"})
    assert settings.phase_ends(100) == [50, 75, 100]
    assert settings.phase_ends(1) == [0, 1, 1]
    thirds = changed(Settings(), {"phases": "32:0.333333,64:0.333333,128:0.333334"})
    assert thirds.phase_ends(3_000_000)[-1] == 3_000_000
    short = changed(Settings(), {"phases": "32:0.3333331,64:0.333333,128:0.333333"})  # adds up to 0.9999991
    assert short.phase_ends(3_000_000)[-1] == 3_000_000


def test_the_share_of_masks_goes_from_the_first_to_the_last_in_a_straight_line():
    assert Settings().mask_rate(7, 10) is None
    settings = changed(Settings(), {"first_rate": 0.30, "masking.rate": 0.10})
    rates = [settings.mask_rate(step, 5) for step in range(5)]
    assert rates == pytest.approx([0.30, 0.25, 0.20, 0.15, 0.10])
    assert settings.mask_rate(0, 1) == 0.30


def test_the_limit_of_predictions_follows_the_length_only_where_counting_is_faithful():
    short, long = Phase(max_length=128, share=0.9), Phase(max_length=512, share=0.1)
    assert faithful().masking_at(short).max_predictions == 20
    assert faithful().masking_at(long).max_predictions == 77
    assert modern().masking_at(long) == modern().masking
    assert modern().masking.max_predictions is None
    given = changed(faithful(), {"masking.max_predictions": 11})
    assert given.masking_at(long).max_predictions == 11


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": 1, "tokens": 2}, "not steps and tokens"),
        ({"steps": 1, "epochs": 1, "minutes": 3}, "not steps and epochs and minutes"),
        ({"steps": 0}, "steps"),
        ({"minutes": -1}, "minutes"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_a_budget_is_exactly_one_number(given, words):
    with pytest.raises(ConfigError, match=words):
        make_budget(**given)
    with pytest.raises(ValueError, match="not none"):
        Budget()
    assert make_budget(steps=None, minutes=None) is None
    assert make_budget(steps=3, minutes=None) == Budget(steps=3)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_survives_its_config_json(recipe, tmp_path):
    request = make_request(tmp_path, size="tiny", recipe=recipe, budget=Budget(tokens=10**6))
    write_request(tmp_path, request)
    assert read_request(tmp_path) == request
    every = {"phases": "32:0.5:99,64:0.5", "masking": {"kind": "span"}, "static_copies": 3}
    changes = make_request(tmp_path, start="somewhere", recipe=recipe, changes=every)
    write_request(tmp_path, changes)
    assert read_request(tmp_path) == changes
    assert changes.budget == Budget(minutes=60)


def test_faithful_is_the_bert_of_2018():
    settings = faithful()
    assert settings.pairs == "faithful"
    masking = settings.masking
    assert (masking.kind, masking.rate, masking.mask_share, masking.random_share) == ("piece", 0.15, 0.8, 0.1)
    assert masking.faithful
    assert settings.first_rate is None
    assert settings.dropout == 0.1
    optimizer = settings.optimizer
    assert (optimizer.kind, optimizer.betas, optimizer.eps) == ("bert_adam", (0.9, 0.999), 1e-6)
    assert (optimizer.rate, optimizer.weight_decay, optimizer.clip) == (1e-4, 0.01, 1.0)
    assert settings.schedule.kind == "faithful"
    assert settings.schedule.warmup * 1_000_000 == 10_000
    assert settings.batch.tokens == 256 * 512
    assert [(phase.max_length, phase.share) for phase in settings.phases] == [(128, 0.9), (512, 0.1)]
    steps = steps_for(Budget(tokens=256 * 512 * 1_000_000), settings, [Epoch(1000, 1000 * 256 * 512)] * 2)
    assert steps == 1_000_000
    assert settings.phase_ends(steps) == [900_000, 1_000_000]
    shape = named_size("base")
    assert (shape.layer_norm_eps, shape.hidden_act, shape.initializer_range) == (1e-12, "gelu", 0.02)


def test_a_faithful_run_is_put_together_as_the_original_was(data, tmp_path):
    """Optimizer, who decays, the jump at the end of warm-up, and weights that are cut at two deviations."""
    request = make_request(data, size="tiny", recipe="faithful")
    loop = PretrainingRun(request, tmp_path / "run", World(), Watcher()).make_loop(1000)
    (optimizer,) = loop.optimizers
    assert isinstance(optimizer, BertAdam)
    names = {id(weight): name for name, weight in loop.model.named_parameters()}
    decays, stays = [{names[id(weight)] for weight in group["params"]} for group in optimizer.param_groups]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert stays == {name for name in names.values() if name.endswith("bias") or "norm" in name}
    assert "encoder.embeddings.word.weight" in decays
    assert loop.clip == 1.0
    assert [loop.rate_at(step) for step in (0, 5, 9, 10, 500, 999)] == pytest.approx([0, 0.5, 0.9, 0.99, 0.5, 0.001])
    weights = loop.model.encoder.layers[0].up.weight
    assert 0.039 < float(weights.detach().abs().max()) <= 0.04
    assert loop.model.encoder.config.hidden_dropout_prob == 0.1
    assert loop.model.encoder.config.attention_probs_dropout_prob == 0.1


def test_ten_steps_of_a_faithful_run_are_those_of_a_calculation_by_hand(data, tmp_path, monkeypatch):
    """The loop's own steps beside NumPy in float64, fed the same gradients: norm over all weights, decay, the jump."""
    total, warmup, peak = 12, 4, 1e-2
    changes = {"optimizer.rate": peak, "schedule.warmup": warmup / total, "batch.tokens": 256, "phases": "32:1"}
    request = make_request(data, size="tiny", recipe="faithful", changes=changes)
    loop = PretrainingRun(request, tmp_path / "run", World(), Watcher()).make_loop(total)
    weights = dict(loop.model.named_parameters())
    seen = []
    clip = Loop._clip
    monkeypatch.setattr(
        Loop, "_clip", lambda self: seen.append({name: as_float64(w.grad) for name, w in weights.items()}) or clip(self)
    )
    expected = {name: as_float64(weight) for name, weight in weights.items()}
    mean, square = ({name: np.zeros_like(value) for name, value in expected.items()} for _ in range(2))
    progress = Progress()
    for step in range(10):
        progress, record = loop.take_step(progress)
        rate = peak * (step / warmup if step < warmup else 1 - step / total)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in seen[-1].values()))
        assert (record.rate, record.norm) == pytest.approx((rate, norm))
        for name, gradient in seen[-1].items():
            gradient = gradient / max(1.0, norm)
            mean[name] = 0.9 * mean[name] + 0.1 * gradient
            square[name] = 0.999 * square[name] + 0.001 * gradient**2
            decay = 0.0 if name.endswith("bias") or "norm" in name else 0.01
            expected[name] -= rate * (mean[name] / (np.sqrt(square[name]) + 1e-6) + decay * expected[name])
    for name, weight in weights.items():
        np.testing.assert_allclose(as_float64(weight), expected[name], atol=1e-6, err_msg=name)


def as_float64(tensor):
    return tensor.detach().numpy().astype(np.float64)


def test_an_example_of_128_tokens_has_19_masks_in_a_faithful_run(tmp_path, tokenizer):
    """15% of all tokens, the special ones counted, rounded; 20 would be the most. A little over half are random."""
    train, _ = both_splits(build_data(tmp_path, make_documents(40, sentences=40), holdout=0.0))
    settings = changed(faithful(), {"batch.tokens": 60_000, "phases": "128:1"})
    (part,) = PretrainingWork(train, tokenizer, settings, SHAPE, 1, World()).step(0, {}).parts
    _, _, lengths, positions, _, pairs = part.tensors
    masked = torch.bincount(torch.bucketize(positions, lengths.cumsum(0), right=True), minlength=len(lengths))
    full = lengths == 128
    assert int(full.sum()) > 50
    assert set(masked[full].tolist()) == {19}
    assert (masked == torch.clamp(torch.round(0.15 * lengths.double()), 1, 20)).all()
    assert 0.45 < float(pairs.double().mean()) < 0.65
