"""What pre-training is worth in fine-tuning. See benchmarks/finetune.py."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bertsmith.bundle.folder import digest_of_model
from bertsmith.train.metrics import read_log
from finetune_runs import COST, ROOT, RUNS, Case, cost, glue_case, jobs_of, page, run_all, several, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MINI = ROOT / "runs" / "pretrain-en"


def worth(options: Any) -> int:
    """What pre-training is worth: our mini after it, and with fresh weights, which need its vocabulary alone."""
    settings = {"epochs": 4, "optimizer.rate": 1e-3}
    sets = [
        glue_case("sst2-2000", "sst2", "SST-2", settings=settings, rows=2000),
        glue_case("sst2-10000", "sst2", "SST-2", settings=settings, rows=10_000),
        glue_case("mrpc", "mrpc", "MRPC", settings=settings),
        glue_case("cola", "cola", "CoLA", settings=settings),
        Case("conll", "conll2003", "conll2003/train.txt", "conll2003/dev.txt", settings),
    ]
    sets = [case for case in sets if options.only in case.name]
    fresh = _worth_cases(sets, "fresh", fresh_mini())
    if not (MINI / "run" / "model").is_dir():
        run_all(jobs_of(options, *([one] for one in fresh)))
        print("the rest needs the mini of `make results NAME=pretrain ARGS='--run en'`, which is not there", flush=True)
        return 1
    pretrained = _worth_cases(sets, "pretrained", MINI / "run" / "model")
    pairs = list(zip(fresh, pretrained, strict=True))
    jobs = jobs_of(options, *pairs)
    run_all(sorted(jobs, key=lambda job: job.case in fresh))  # first what needs the mini, which may be gone tomorrow
    rows = []
    for both, case in zip(pairs, sets, strict=True):
        metric = case.request(0).options["metric"]
        found = [several(one, options, beside=both) for one in both]
        gain = 100 * (statistics.fmean(s[metric] for s in found[1]) - statistics.fmean(s[metric] for s in found[0]))
        cells = (*(shown(scores, metric) for scores in found), f"{gain:+.1f}", cost(both[1]))
        rows.append(f"| {case.name}, {metric} | {' | '.join(cells)} |")
    about = (
        f"The mini of [pretrain-en](pretrain-en.md), made again by its command, {how_far()}, against the same mini "
        "with the weights that its pre-training began with, which are random but for heads that look at neighbouring "
        "words: dev scores in percent, of the best epoch, mean ± standard deviation (least–most) over seeds of "
        f"fine-tuning, {settings['epochs']} epochs, rate {settings['optimizer.rate']:g}. "
        "Neither side's rate was searched for."
    )
    lines = [f"| set | fresh weights | pre-trained | gain | {COST[0]} |", "|---|---|---|---|---|", *rows]
    page("finetune-worth", "What pre-training is worth", about, lines, [one for both in pairs for one in both], options)
    return 0


def how_far() -> str:
    """How long the mini was trained, and what it knows of held-out text: steps differ from machine to machine."""
    last = [entry for entry in read_log(MINI / "run" / "metrics.jsonl") if entry["kind"] == "eval"][-1]
    words, pairs = (f"{last[name]:.1%}" for name in ("mlm_accuracy", "pair_accuracy"))
    return f"{last['step']:,} steps here ({words} of masked words and {pairs} of pairs in held-out text)"


def _worth_cases(sets: Sequence[Case], kind: str, model: Path) -> list[Case]:
    """The sets with a model as their beginning; their names hold which it is, by its digest."""
    mark = digest_of_model(model)[:8]
    return [replace(case, name=f"worth-{case.name}-{kind}-{mark}", model=str(model.relative_to(ROOT))) for case in sets]


def fresh_mini() -> Path:
    """A mini with the pre-trained one's vocabulary, as pre-training begins: no training at all."""
    from bertsmith.bundle.folder import Bundle, write_bundle
    from bertsmith.config import named_size
    from bertsmith.jobs.shards import open_tokenizer
    from bertsmith.model.heads import build
    from bertsmith.model.initial import look_at_neighbours
    from pretrain_run import make_vocabulary

    folder = RUNS / "fresh-mini"
    if not folder.exists():
        tokenizer = open_tokenizer(str(make_vocabulary("en")))
        model = build(named_size("mini", vocab_size=tokenizer.vocab_size), "pretraining", seed=0)
        look_at_neighbours(model.encoder)
        bundle = Bundle(model, tokenizer, model.config.max_position_embeddings)
        write_bundle(folder, bundle, source="a benchmark, without training")
    return folder
