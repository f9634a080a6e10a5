"""What a pre-training recipe is worth in what comes after it: as many steps each, by loss and by fine-tuning.

mini with BERT's vocabulary of 30,522 on en-general and en-web, examples up to 128 tokens, one seed of pre-training. The
loss is that of masked words on the fixed held-out set of `benchmarks/held_out.py`. Fine-tuning has 2,000 rows of SST-2
and 3,000 sentences of CoNLL-2003, four epochs at a rate of 3e-4, three seeds: percent, of the best epoch on dev. How
alike rare words are: the mean cosine between the vectors of two words of the rarer half of those that occur. Where it
is near one, they are one vector with small differences, and dropout hides those.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import harness
from bertsmith.bundle.folder import Bundle, digest_of_model, write_bundle
from bertsmith.data.shards import ShardSet
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.model.heads import build
from bertsmith.train.checkpoint import Progress
from finetune_runs import ROOT, Case, Job, glue_case, run_all, run_case, shown
from held_out import HERE, data_folder, dates_of, held_out_loss, kept, prepare, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.model.heads import BertModel

STEPS = 1000
SEEDS = range(3)
VARIANTS: dict[str, dict[str, Any]] = {
    "modern": {},
    "modern, the bias of words from zero, ε 1e-6": {"word_bias": "zero", "optimizer.eps": 1e-6},
}
TASKS = (
    (glue_case("sst2-2000", "sst2", "SST-2", rows=2000), "accuracy"),
    (Case("conll-3000", "conll2003", "conll2003/train.txt", "conll2003/dev.txt", rows=3000), "f1"),
)
FINETUNING = {"epochs": 4, "optimizer.rate": 3e-4}


def main() -> int:
    """Run what is not there yet, print."""
    options = harness.parser(__doc__ or "").parse_args()
    torch.set_num_threads(2)
    runs = {name: pretrained(name, changes) for name, changes in VARIANTS.items()}
    cases = {name: [cased(case, name, run["digest"]) for case, _ in TASKS] for name, run in runs.items()}
    run_all([Job(case, seed) for seed in SEEDS for each in cases.values() for case in each])
    rows = []
    for name, run in runs.items():
        scores = [
            shown([run_case(case, seed)["scores"] for seed in SEEDS], metric)
            for case, (_, metric) in zip(cases[name], TASKS, strict=True)
        ]
        rows.append(f"| {name} | {run['loss']:.3f} | {run['alike']:.2f} | {' | '.join(scores)} |")
    heads = [f"{case.name}, {metric}" for case, metric in TASKS]
    lines = [
        (__doc__ or "").strip(),
        "",
        f"| {STEPS:,} steps | held-out loss | rare words alike | {' | '.join(heads)} |",
        "|---|---|---|---|---|",
        *rows,
        "",
        dates_of(runs.values()),
        "",
        harness.versions(),
    ]
    harness.show("transfer", "What a recipe is worth in what comes after it", lines, keep=options.keep)
    return 0


def pretrained(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The record of a variant, run now or earlier."""
    asked = {"phases": "128:1", **changes}
    run = partial(train, folder_of(name), asked)
    return kept(f"transfer-{name.replace(' ', '-')}", run, [STEPS, settings_of("modern", asked)])


def folder_of(name: str) -> Path:
    """Where a variant's model is."""
    return HERE / f"transfer-{list(VARIANTS).index(name)}"


def cased(case: Case, name: str, digest: str) -> Case:
    """A task, begun with a variant's model."""
    model = str(folder_of(name).relative_to(ROOT))
    return Case(f"transfer-{case.name}-{digest}", case.preset, case.train, case.dev, FINETUNING, model, case.rows)


def train(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """A variant to its end, and its model folder, with dropout as fine-tuning has it."""
    loop, progress, losses = prepare("modern", STEPS, changes), Progress(), []
    while progress.step < STEPS:
        progress, record = loop.take_step(progress)
        losses.append(record.figures["mlm_loss"])
        if progress.step % 100 == 0:
            print(f"{folder.name}, step {progress.step}: {statistics.fmean(losses[-100:]):.4f}", flush=True)
    model: Any = loop.model
    published = build(model.config.derive(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1), "pretraining")
    published.load_state_dict(model.state_dict())
    bundle = Bundle(published, open_tokenizer(str(data_folder())), published.config.max_position_embeddings)
    write_bundle(folder, bundle, source=f"a benchmark, {STEPS:,} steps")
    return {"loss": held_out_loss(model), "alike": alike(model), "digest": digest_of_model(folder)[:8]}


@torch.no_grad()
def alike(model: BertModel) -> float:
    """The mean cosine between words of the rarer half."""
    counts = ShardSet(data_folder()).count_pieces()
    there = np.flatnonzero(counts)
    rare = there[np.argsort(counts[there], kind="stable")[: len(there) // 2]]
    rows = torch.nn.functional.normalize(model.encoder.embeddings.word.weight[torch.from_numpy(rare)])
    number = len(rare)
    return float((rows.sum(0).square().sum() - number) / (number * (number - 1)))


if __name__ == "__main__":
    sys.exit(main())
