"""The peer of fine-tuning: `transformers`' Trainer, with the same rows in the same order, settings, weights and seed.

It begins with our own model, head included, through a folder on disk; every epoch reads the items in the order of our
run. Its warm-up is its own, and one step behind ours: its first step has a rate of zero. Without dropout, and with that
warm-up given to our loop, both come to the same weights (tests/finetuning/test_trainer_peer.py). Padding is to the
longest of a batch (the collator's own way), or to a fixed length as `run_glue` has it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from transformers import TrainerCallback

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.finetuning.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.finetuning.run import FinetuningRun

_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
}


class OurOrder(torch.utils.data.Sampler[int]):
    """The items of each epoch as our run has them."""

    def __init__(self, run: FinetuningRun) -> None:
        self.run, self.epoch = run, 0

    def __len__(self) -> int:
        return len(self.run.train_split.items)

    def __iter__(self) -> Iterator[int]:
        order = np.concatenate(self.run.work.batches(self.epoch)).tolist()
        self.epoch += 1
        return iter(order)


def features_of(run: FinetuningRun, items: Any, pad_to: int | None) -> list[dict[str, Any]]:
    """Items as dictionaries; a tag stands at the first piece of its word, -100 elsewhere."""
    made = []
    for item in items:
        if len(item.ids) != 1:
            raise ValueError("the Trainer reads one sequence for an example")
        ids, types = item.ids[0].tolist(), item.types[0].tolist()
        row: dict[str, Any] = {"input_ids": ids, "token_type_ids": types, "attention_mask": [1] * len(ids)}
        if item.read is not None:
            labels = np.full(len(ids), -100)
            labels[item.read] = item.targets
            row["labels"] = labels.tolist()
        elif run.task.kind == "regress":
            row["labels"] = float(item.targets[0])
        else:
            row["labels"] = int(item.targets[0])
        if pad_to is not None:
            missing = pad_to - len(ids)
            for name in ("input_ids", "token_type_ids", "attention_mask"):
                row[name] = row[name] + [0] * missing
        made.append(row)
    return made


_NOT_GIVEN: Any = {
    **dict.fromkeys(("layer_decay", "freeze", "class_weights", "smoothing", "patience", "evaluation"), True),
    "optimizer": {"kind"},
    "schedule": {"kind"},
    "batch": {"tokens"},
}


def make_trainer(
    run: FinetuningRun, scratch: Path, *, pad_to: int | None = None, evaluate: bool = True
) -> tuple[Any, StepTimes]:
    """A Trainer that does what our run does, and its clock."""
    folder = scratch / "start"
    if not folder.exists():
        write_bundle(folder, Bundle(run.bundle.model, run.tokenizer, run.bundle.max_length), source="a benchmark")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, _CLASSES[run.task.head]).from_pretrained(folder)
    chosen, settings = run.settings.optimizer, run.settings
    own = settings.model_dump(include=_NOT_GIVEN)
    if own != Settings().model_dump(include=_NOT_GIVEN):
        raise ValueError(f"the Trainer is not given these: {own}")
    arguments = transformers.TrainingArguments(
        output_dir=str(scratch / "trainer"),
        per_device_train_batch_size=settings.batch.size,
        per_device_eval_batch_size=settings.batch.size,
        learning_rate=chosen.rate,
        num_train_epochs=settings.epochs,
        warmup_steps=max(1, round(settings.schedule.warmup * run.total)),
        lr_scheduler_type="linear",
        weight_decay=chosen.weight_decay,
        adam_beta1=chosen.betas[0],
        adam_beta2=chosen.betas[1],
        adam_epsilon=chosen.eps,
        max_grad_norm=chosen.clip,
        optim="adamw_torch_fused",
        eval_strategy="epoch" if evaluate else "no",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=0,
        seed=settings.seed,
        use_cpu=True,
    )
    collator = (
        transformers.DataCollatorForTokenClassification(tokenizer)
        if run.task.head == "tagging"
        else transformers.DataCollatorWithPadding(tokenizer)
    )
    if pad_to is not None:
        collator = transformers.default_data_collator

    class Peer(transformers.Trainer):  # type: ignore[misc]
        order = OurOrder(run)

        def _get_train_sampler(self, *_: Any) -> Any:
            return self.order

    dev = None if run.dev_split is None else features_of(run, run.dev_split.items, pad_to)
    times = StepTimes()
    made = Peer(
        model=model,
        args=arguments,
        train_dataset=features_of(run, run.train_split.items, pad_to),
        eval_dataset=dev,
        data_collator=collator,
        compute_metrics=_scores(run) if evaluate else None,
        callbacks=[times],
    )
    return made, times


def _scores(run: FinetuningRun) -> Any:
    """Their logits, judged by our task."""

    def compute(output: Any) -> dict[str, float]:
        assert run.dev_split is not None
        examples, items = run.dev_split.examples, run.dev_split.items
        logits = torch.from_numpy(np.asarray(output.predictions))
        outputs = [run.task.outputs(row[None], None)[0] for row in logits]  # type: ignore[arg-type]
        return run.task.score(examples, run.task.decode(examples, items, outputs))

    return compute


class StepTimes(TrainerCallback):  # type: ignore[misc]
    """Seconds from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.last: float | None = None

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """What lies between epochs does not count."""
        self.last = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """One more."""
        now = time.perf_counter()
        if self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now


def best_scores(run: FinetuningRun) -> dict[str, float]:
    """Train the peer; the scores of its best epoch by the task's metric."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer, _ = make_trainer(run, Path(scratch))
        trainer.train()
        assert trainer.order.epoch == run.settings.epochs, "an epoch was read in another order than ours"
        found = [
            {name.removeprefix("eval_"): value for name, value in entry.items() if name.startswith("eval_")}
            for entry in trainer.state.log_history
            if "eval_loss" in entry
        ]
    return max(found, key=lambda entry: entry[run.task.options.metric])
