"""The task that a model was fine-tuned for, and what it may be changed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError, InputError, WeightsError
from bertsmith.tasks.conll import is_entity_tag
from bertsmith.tasks.kinds import KINDS, make_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bertsmith.bundle.folder import Bundle
    from bertsmith.model.heads import BertModel
    from bertsmith.tasks.task import Task

__all__ = ["change_task", "does_task", "put_extras", "task_of"]


def does_task(bundle: Bundle) -> bool:
    """Whether a model has a task's head."""
    return bundle.task is not None or any(task.head == bundle.model.kind for task in KINDS.values())


def task_of(name: str, bundle: Bundle) -> Task[Any]:
    """The task of a fine-tuned model, ours or another's, with its own weights in place; others are refused."""
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
    if not put_extras(bundle):
        raise WeightsError(f"{name}: bertsmith.safetensors does not hold the weights that bertsmith.json asks for")
    return task


def change_task(name: str, task: Task[Any], model: BertModel, options: Mapping[str, Any]) -> Task[Any]:
    """A task with other options, if its model can do that."""
    if "labels" in options:
        raise InputError(f"{name}: labels are those that the model was trained on and cannot be set")
    changed = task.changed(**options)
    if "multilabel" in options and model.config.problem_type not in (None, changed.problem_type):
        raise InputError(f"{name}: multilabel is as the model was trained and cannot be set; leave it out")
    is_new = changed.options.columns.get("pair") != task.options.columns.get("pair")
    if getattr(changed.options, "pairs", None) is False and is_new:
        raise InputError(f"{name}: there are to be no second texts, as in training; leave out the column of them")
    trained = set(model.state_dict())
    changed.attach(model)
    if not trained >= set(model.state_dict()):
        raise InputError(f"{name}: attention over segments must be trained, and was not; set long.pool to max or mean")
    positions = model.config.max_position_embeddings
    if changed.options.max_length > positions:
        raise InputError(
            f"max_length: {changed.options.max_length} is beyond the model's {positions} positions; take at most these"
        )
    return changed


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
            if kind == "tag" and not all(map(is_entity_tag, config.id2label.values())):
                options["plain"] = True
            return {"kind": kind, "options": options}
    raise InputError(
        f"{name}: is a model of kind '{bundle.model.kind}', which does no task yet; see bertsmith finetune"
    )


def put_extras(bundle: Bundle) -> bool:
    """Weights that stand beside the model's own, to their place; False, and nothing done, where they do not fit."""
    wanted = {key: tensor for key, tensor in bundle.model.state_dict().items() if key.startswith("segments.")}
    if {key: tensor.shape for key, tensor in wanted.items()} != {k: t.shape for k, t in bundle.extras.items()}:
        return False
    for key, tensor in wanted.items():
        tensor.copy_(bundle.extras[key])
    return True
