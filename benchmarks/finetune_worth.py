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
    search,
    searched_rows,
    several,
    shown,
)

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ROOT / "runs" / "pretrain-en" / "run" / "model"
EPOCHS = {"epochs": 4}
RATES = ({"optimizer.rate": 3e-4}, {"optimizer.rate": 1e-3})
_MINI = "worth-mini"  # the record of the pre-trained one
# What a pre-trained one is tried with, as many as a fresh one: classes begin with a last layer that has learned what
# follows what, so a new one is tried there, and not the higher rate, which was worse than the lower on all four sets.
WITH_CLASSES = (RATES[0], {**RATES[0], "fresh_layers": 1})


def worth(options: Any) -> int:
    """What pre-training is worth: our mini after it, and with fresh weights, which need its vocabulary alone."""
    sets = [
        glue_case("sst2-2000", "sst2", "SST-2", settings=EPOCHS, rows=2000),
        glue_case("sst2-10000", "sst2", "SST-2", settings=EPOCHS, rows=10_000),
        glue_case("mrpc", "mrpc", "MRPC", settings=EPOCHS),
        glue_case("cola", "cola", "CoLA", settings=EPOCHS),
        Case("conll", "conll2003", "conll2003/train.txt", "conll2003/dev.txt", EPOCHS),
    ]
    sets = [case for case in sets if options.only in case.name]
    tried = {f"{case.name}, fresh": (_begun(case, "fresh", fresh_mini()), RATES) for case in sets}
    mini = known_mini()
    if mini is None:
        run_all(jobs_of(options, *([one] for one in search(*tried.values()))))
        print("the rest needs the mini of `make results NAME=pretrain ARGS='--run en'`, which is not there", flush=True)
        return 1
    name = f"pretrained-{mini['digest']}"  # no two are alike
    for case in sets:
        candidates = RATES if case.preset == "conll2003" else WITH_CLASSES
        tried[f"{case.name}, pre-trained"] = (_begun(case, name, MODEL), candidates)
    found = search(*tried.values())
    pairs = list(zip(found[: len(sets)], found[len(sets) :], strict=True))
    run_all(jobs_of(options, *pairs))
    rows = []
    for both, case in zip(pairs, sets, strict=True):
        metric = case.request(0).options["metric"]
        scores = [several(one, options, beside=both) for one in both]
        gain = 100 * (statistics.fmean(s[metric] for s in scores[1]) - statistics.fmean(s[metric] for s in scores[0]))
        cells = (*(shown(each, metric) for each in scores), f"{gain:+.1f}", cost(both[1]))
        rows.append(f"| {case.name}, {metric} | {' | '.join(cells)} |")
    about = (
        f"The mini of [pretrain-en](pretrain-en.md), made again by its command, {mini['far']}, against the same mini "
        "with the weights that its pre-training began with, which are random but for heads that look at neighbouring "
        "words: dev scores in percent, of the best epoch, mean ± standard deviation (least–most) over seeds of "
        "fine-tuning, with the settings that are the best on seed 0, which is among them."
    )
    lines = [f"| set | fresh weights | pre-trained | gain | {COST[0]} |", "|---|---|---|---|---|", *rows, ""]
    lines += searched_rows(tried)
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


def _begun(case: Case, name: str, model: Path) -> Case:
    """A case with a model as its beginning."""
    return replace(case, name=f"worth-{case.name}-{name}", model=str(model.relative_to(ROOT)))


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
