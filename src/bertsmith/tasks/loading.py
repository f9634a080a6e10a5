"""A fine-tuned model by its name: the model, its tokenizer, and the task that it was made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.bundle.resolve import load_bundle
from bertsmith.errors import ConfigError, InputError, TokenizerError, WeightsError
from bertsmith.tasks.kinds import KINDS, make_task

if TYPE_CHECKING:
    from bertsmith.bundle.folder import Bundle
    from bertsmith.model.heads import BertModel
    from bertsmith.tasks.task import Task
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["TaskModel", "load_task"]


@dataclass(frozen=True)
class TaskModel:
    """What it takes to predict."""

    task: Task[Any]
    model: BertModel
    tokenizer: Tokenizer


def load_task(name: str) -> TaskModel:
    """Open a fine-tuned model, ours or another's; one without a task's head is refused."""
    bundle = load_bundle(name)
    if bundle.tokenizer is None:
        raise TokenizerError(f"{name}: has no tokenizer: neither tokenizer.json nor vocab.txt is in its folder")
    record = bundle.task or _guess(name, bundle)
    labels = tuple(bundle.model.config.id2label.values())
    try:
        task = make_task(record["kind"], record["options"])
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    if task.num_outputs is None:
        task = task.with_labels(labels)
    if task.head != bundle.model.kind:
        raise InputError(f"{name}: is a model for {bundle.model.kind}, but its task is {task.kind}")
    task.attach(bundle.model)
    _put_extras(name, bundle)
    return TaskModel(task, bundle.model.eval(), bundle.tokenizer)


def _guess(name: str, bundle: Bundle) -> dict[str, Any]:
    """The task of a model that others made, by its head."""
    config, length = bundle.model.config, bundle.max_length
    for kind, task in KINDS.items():
        if task.head == bundle.model.kind and (task.num_outputs in (None, config.num_labels) or kind != "regress"):
            if kind == "classify" and config.num_labels == 1:
                continue
            options: dict[str, Any] = {"max_length": length}
            if kind == "classify" and config.problem_type == "multi_label_classification":
                options["multilabel"] = True
            return {"kind": kind, "options": options}
    raise InputError(
        f"{name}: is a model of kind '{bundle.model.kind}', which does no task yet; see bertsmith finetune"
    )


def _put_extras(name: str, bundle: Bundle) -> None:
    """Weights that stand beside the model's own."""
    wanted = {key: tensor for key, tensor in bundle.model.state_dict().items() if key.startswith("segments.")}
    if {key: tensor.shape for key, tensor in wanted.items()} != {k: t.shape for k, t in bundle.extras.items()}:
        raise WeightsError(f"{name}: bertsmith.safetensors does not hold the weights that bertsmith.json asks for")
    for key, tensor in wanted.items():
        tensor.copy_(bundle.extras[key])
