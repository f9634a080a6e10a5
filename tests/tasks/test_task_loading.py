"""A fine-tuned model by its folder: ours with its options, another's by its head, and folders that lie."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.errors import ConfigError, InputError, TokenizerError, WeightsError
from bertsmith.infer.engine import load
from bertsmith.jobs.predict import open_task
from bertsmith.model.heads import build
from bertsmith.tasks.answer import AnswerTask
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.kinds import KINDS, make_task
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tag import Tag
from bertsmith.tasks.task import TaskBatch
from finetuning.small_tasks import PIECES, SHAPE, make_tokenizer, write_model

LABELS = ("neg", "pos", "neutral")


def write_task(folder, kind="classify", options=None, labels=LABELS, seed=4):
    """A folder as fine-tuning writes it."""
    task = make_task(kind, {"max_length": 64, **(options or {})})
    names = (
        {"num_labels": task.num_outputs, "id2label": None}
        if task.num_outputs
        else {"id2label": dict(enumerate(labels))}
    )
    config = SHAPE.derive(problem_type=task.problem_type, **names)
    model = build(config, task.head, seed=seed)
    task.attach(model, torch.Generator().manual_seed(11))
    record = {"kind": kind, "options": task.options.model_dump(exclude={"labels"})}
    write_bundle(folder, Bundle(model, make_tokenizer(), 64, record), source="a test")
    return model.eval()


def change(folder, **content):
    path = folder / "bertsmith.json"
    path.write_text(json.dumps({"task": {**json.loads(path.read_text())["task"], **content}}))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("classify", {"multilabel": True, "threshold": 0.3, "separator": ",", "max_length": 48}),
        ("classify", {"columns": {"text": 4, "label": "x"}, "long": {"mode": "head+tail", "head": 9}}),
        ("regress", {"metric": "pearson"}),
        ("choose", {"columns": {"choices": "a,b"}}),
        ("tag", {"context": True}),
        ("answer", {"unanswerable": True, "null_threshold": -1.25, "stride": 9, "language": "zh"}),
    ],
)
def test_options_and_labels_come_back(tmp_path, kind, options):
    write_task(tmp_path / "m", kind, options)
    ready = open_task(str(tmp_path / "m"))
    assert ready.task.options == make_task(kind, {"max_length": 64, **options}).options
    assert ready.task.labels == (LABELS if kind in ("classify", "tag") else ())
    assert not ready.model.training
    assert ready.tokenizer.encode("The river").tokens == ["[CLS]", "the", "river", "[SEP]"]


def test_the_attention_over_segments_comes_back(tmp_path):
    options = {"max_length": 8, "long": {"mode": "segments", "pool": "attention"}}
    before = write_task(tmp_path / "m", "classify", options)
    ready = open_task(str(tmp_path / "m"))
    for name, weight in before.segments.state_dict().items():
        assert torch.equal(weight, ready.model.segments.state_dict()[name])
    assert (tmp_path / "m" / "bertsmith.safetensors").is_file()
    path = tmp_path / "a.txt"
    path.write_text("the river was good in winter in rome in paris\n")
    (item,) = ready.task.encode(list(ready.task.read(str(path), labelled=False)), ready.tokenizer)
    assert len(item.ids) == 2
    with torch.no_grad():
        batch = TaskBatch.of([item])
        torch.testing.assert_close(ready.task.logits(ready.model, batch), ready.task.logits(before, batch))


def test_weights_that_the_options_ask_for_must_be_there(tmp_path):
    write_task(tmp_path / "m", "classify", {"long": {"mode": "segments", "pool": "attention"}})
    (tmp_path / "m" / "bertsmith.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"bertsmith.safetensors does not hold the weights that bertsmith.json asks"):
        open_task(str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({"kind": "summarise"}, "task: 'summarise' is not one of classify, regress, choose, tag, answer"),
        ({"options": {"max_lenght": 3}}, "task: max_lenght: "),
        ({"options": {"max_length": "long"}}, "task: max_length: "),
        ({"options": {"metric": "bleu"}}, "metric: 'bleu' is not one of "),
        ({"options": [1]}, r"task: expected options by name, found \[1\]"),
        ({"options": None}, "task: expected options by name, found None"),
    ],
)
def test_a_broken_record_is_refused_with_its_folder(tmp_path, content, what):
    write_task(tmp_path / "m")
    change(tmp_path / "m", **content)
    with pytest.raises(ConfigError, match=f"^{tmp_path}/m: {what}"):
        open_task(str(tmp_path / "m"))


def test_a_record_of_another_head_is_refused(tmp_path):
    write_task(tmp_path / "m")
    change(tmp_path / "m", kind="tag", options={})
    with pytest.raises(InputError, match="m: is a model for classification, but its task is tag"):
        open_task(str(tmp_path / "m"))


def test_a_model_without_a_task_is_refused(tmp_path):
    write_model(tmp_path / "m")
    with pytest.raises(
        InputError, match="is a model of kind 'pretraining', which does no task yet; see bertsmith fine"
    ):
        open_task(str(tmp_path / "m"))
    write_task(tmp_path / "n")
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / "n" / name).unlink()
    with pytest.raises(TokenizerError, match="n: has no tokenizer"):
        open_task(str(tmp_path / "n"))


# Of others

SEVERAL = "multi_label_classification"
FOREIGN = {
    "single": ("BertForSequenceClassification", {"id2label": {0: "bad", 1: "good", 2: "fine"}}, Classify),
    "several": ("BertForSequenceClassification", {"num_labels": 3, "problem_type": SEVERAL}, Classify),
    "number": ("BertForSequenceClassification", {"num_labels": 1}, Regress),
    "choice": ("BertForMultipleChoice", {}, Choose),
    "tags": ("BertForTokenClassification", {"id2label": {0: "O", 1: "B-X", 2: "I-X"}}, Tag),
    "span": ("BertForQuestionAnswering", {}, AnswerTask),
}  # fmt: skip


def write_foreign(folder, architecture, changes):
    """A folder that `transformers` wrote."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.2,
        **changes,
    )
    model = getattr(transformers, architecture)(config).eval()
    model.save_pretrained(folder)
    make_tokenizer().save(folder, max_length=64)
    return model


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_transformers_is_known_by_its_head(tmp_path, name):
    architecture, changes, kind = FOREIGN[name]
    theirs = write_foreign(tmp_path / "m", architecture, changes)
    assert not (tmp_path / "m" / "bertsmith.json").exists()
    ready = open_task(str(tmp_path / "m"))
    assert type(ready.task) is kind
    assert ready.task.options.max_length == 64
    if name in ("single", "tags"):
        assert ready.task.labels == tuple(changes["id2label"].values())
    if name == "several":
        assert ready.task.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
        assert ready.task.options.multilabel
    ids = ready.tokenizer.encode("the river was good", "in rome")
    batch = {
        "input_ids": torch.tensor([ids.ids]),
        "token_type_ids": torch.tensor([ids.type_ids]),
        "attention_mask": torch.ones(1, len(ids.ids), dtype=torch.int64),
    }
    flat = (batch["input_ids"][0], batch["token_type_ids"][0], torch.tensor([len(ids.ids)]))
    with torch.no_grad():
        if name == "choice":
            expected = theirs(**{key: value[None] for key, value in batch.items()}).logits[0]
        elif name == "span":
            found = theirs(**batch)
            expected = torch.stack((found.start_logits[0], found.end_logits[0]), 1)
        else:
            expected = theirs(**batch).logits.flatten(0, -2)
        torch.testing.assert_close(ready.model(*flat), expected, rtol=1e-4, atol=1e-5)


# Options that are changed for prediction


def test_options_can_be_changed_for_prediction(tmp_path):
    write_task(tmp_path / "m", "classify", {"multilabel": True, "columns": {"text": "a"}, "max_length": 48})
    ready = open_task(str(tmp_path / "m"), {"threshold": "0.25", "columns": {"label": 2}})
    assert ready.task.options.threshold == 0.25
    assert ready.task.options.columns == {"text": "a", "label": 2}
    assert ready.task.labels == LABELS
    with pytest.raises(ConfigError, match="treshold: there is no such setting"):
        open_task(str(tmp_path / "m"), {"treshold": 0.3})
    with pytest.raises(InputError, match="max_length: 128 is beyond the model's 64 positions"):
        open_task(str(tmp_path / "m"), {"max_length": 128})


@pytest.mark.parametrize("several", [True, False])
def test_whether_a_text_has_several_classes_cannot_be_changed_after_training(tmp_path, several):
    write_task(tmp_path / "m", options={"multilabel": several})
    assert open_task(str(tmp_path / "m"), {"multilabel": several}).task.options.multilabel is several
    with pytest.raises(InputError, match="m: multilabel is as the model was trained and cannot be set; leave it out"):
        open_task(str(tmp_path / "m"), {"multilabel": not several})


def test_of_a_model_that_does_not_say_it_multilabel_can_be_set(tmp_path):
    write_foreign(tmp_path / "m", "BertForSequenceClassification", {"num_labels": 3})
    assert open_task(str(tmp_path / "m"), {"multilabel": True}).task.options.multilabel


def test_segments_can_be_joined_that_were_not_in_training(tmp_path):
    """By what needs no weights; attention that was never trained is refused, and one that was is kept."""
    write_task(tmp_path / "m", options={"max_length": 48})
    ready = open_task(str(tmp_path / "m"), {"long.mode": "segments", "long.pool": "mean"})
    assert ready.model.segments.how == "mean"
    with pytest.raises(InputError, match="attention over segments must be trained, and was not"):
        open_task(str(tmp_path / "m"), {"long.mode": "segments", "long.pool": "attention"})
    before = write_task(tmp_path / "n", options={"max_length": 48, "long": {"mode": "segments", "pool": "attention"}})
    ready = open_task(str(tmp_path / "n"), {"max_length": 16})
    assert torch.equal(ready.model.segments.query.weight, before.segments.query.weight)


def test_every_kind_names_itself_and_a_head_that_there_is():
    for name, kind in KINDS.items():
        assert kind.kind == name
        task = make_task(name, {})
        assert task.options.metric == kind.metrics[0]
        assert build(SHAPE, kind.head).kind == kind.head
    with pytest.raises(ConfigError, match="task: 'parse' is not one of classify, "):
        make_task("parse", {})


@pytest.mark.parametrize(("labels", "plain"), [(("O", "B-PER", "I-PER"), False), (("DT", "NN", "-LRB-"), True)])
def test_a_tagger_that_others_made_tags_words_or_entities_by_its_labels(tmp_path, labels, plain):
    config = SHAPE.derive(id2label=dict(enumerate(labels)))
    write_bundle(tmp_path / "m", Bundle(build(config, "tagging", seed=1), make_tokenizer(), 64), source="a test")
    ready = open_task(str(tmp_path / "m"))
    assert (ready.task.kind, ready.task.options.plain) == ("tag", plain)
    (found,) = load(str(tmp_path / "m")).tag(["the river was good"])
    assert set(found["tags"]) <= set(labels)
    assert not plain or [one["label"] for one in found["entities"]] == found["tags"]
