"""What pre-training is worth in fine-tuning. See benchmarks/finetune.py."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bertsmith.bundle.folder import digest_of_model
from bertsmith.train.metrics import read_log
from finetune_runs import (
    COST,
    KEPT,
    ROOT,
    RUNS,
    Case,
    circumstances,
    cost,
    glue_case,
    jobs_of,
    page,
    run_all,
    several,
    shown,
)

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ROOT / "runs" / "pretrain-en" / "run" / "model"
_MINI = "worth-mini"  # the record of the pre-trained one
# Settings were looked for on seed 0 of an earlier, shorter mini: rates of 3e-4 and 1e-3, a new top layer for classes,
# as the last one has learned what follows what. Fresh weights gain nothing by 1e-3, and on some seeds learn nothing.
FRESH = {"epochs": 4, "optimizer.rate": 3e-4}
FOR_CLASSES, FOR_TAGS = {**FRESH, "fresh_layers": 1}, {**FRESH, "optimizer.rate": 1e-3}


def worth(options: Any) -> int:
    """What pre-training is worth: our mini after it, and with fresh weights, which need its vocabulary alone."""
    sets = [
        glue_case("sst2-2000", "sst2", "SST-2", rows=2000),
        glue_case("sst2-10000", "sst2", "SST-2", rows=10_000),
        glue_case("mrpc", "mrpc", "MRPC"),
        glue_case("cola", "cola", "CoLA"),
        Case("conll", "conll2003", "conll2003/train.txt", "conll2003/dev.txt"),
    ]
    sets = [case for case in sets if options.only in case.name]
    fresh = [_begun(case, "fresh", fresh_mini(), FRESH) for case in sets]
    mini = known_mini()
    if mini is None:
        run_all(jobs_of(options, *([case] for case in fresh)))
        print("the rest needs the mini of `make results NAME=pretrain ARGS='--run en'`, which is not there", flush=True)
        return 1
    name = f"pretrained-{mini['digest']}"  # no two are alike
    trained = [_begun(case, name, MODEL, FOR_TAGS if case.name == "conll" else FOR_CLASSES) for case in sets]
    pairs = list(zip(fresh, trained, strict=True))
    run_all(jobs_of(options, *pairs))
    rows = []
    for case, both in zip(sets, pairs, strict=True):
        metric = case.request(0).options["metric"]
        before, after = (several(one, options, beside=both) for one in both)
        gains = [100 * (late[metric] - early[metric]) for early, late in zip(before, after, strict=True)]
        each = f"{statistics.fmean(gains):+.1f} ({', '.join(f'{gain:+.1f}' for gain in gains)})"
        cells = (shown(before, metric), shown(after, metric), each, cost(both[1]))
        rows.append(f"| {case.name}, {metric} | {' | '.join(cells)} |")
    about = (
        f"The mini of [pretrain-en](pretrain-en.md), made again by its command, {mini['far']}, against the same mini "
        "with the weights that its pre-training began with, which are random but for heads that look at neighbouring "
        "words: dev scores in percent, of the best epoch, mean ± standard deviation (least–most) over seeds of "
        "fine-tuning; of pre-training there is one. The gain is that of each seed, and their mean. Four epochs in "
        "batches of 32, fresh weights at a rate of 3e-4; the pre-trained mini at 3e-4 and with its top layer begun "
        "anew for classes, at 1e-3 for tags. Settings were chosen on seed 0 of an earlier mini of 4,107 steps."
    )
    lines = [f"| set | fresh weights | pre-trained | gain | {COST[0]} |", "|---|---|---|---|---|", *rows, ""]
    page("finetune-worth", "What pre-training is worth", about, lines, [one for both in pairs for one in both], options)
    return 0


def known_mini() -> dict[str, Any] | None:
    """Which mini it is and how far it came: that in runs/, or the last that was there, where only records are left."""
    found = KEPT.find(_MINI)
    if MODEL.is_dir() and (digest := digest_of_model(MODEL)[:8]) != (found or {}).get("digest"):
        found = {**circumstances(), "digest": digest, "far": how_far()}
        KEPT.add(_MINI, found)
    return found


def how_far() -> str:
    """How long the mini was trained, and what it knows of held-out text: steps differ from machine to machine."""
    last = [entry for entry in read_log(MODEL.parent / "metrics.jsonl") if entry["kind"] == "eval"][-1]
    words, pairs = (f"{last[name]:.1%}" for name in ("mlm_accuracy", "pair_accuracy"))
    return f"{last['step']:,} steps here ({words} of masked words and {pairs} of pairs in held-out text)"


def _begun(case: Case, name: str, model: Path, settings: dict[str, Any]) -> Case:
    """A case with a model as its beginning, and settings."""
    begun = replace(case, name=f"worth-{case.name}-{name}", model=str(model.relative_to(ROOT)))
    return begun.with_settings(settings)


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
