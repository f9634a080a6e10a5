"""Scores of fine-tuning on real sets, a page for each part. See benchmarks/finetune.py."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import harness
from bertsmith.folders import write_whole
from bertsmith.tasks.kinds import make_task
from bertsmith.tasks.scores import paired_bootstrap
from finetune_runs import (
    COST,
    KEPT,
    ROOT,
    SCORES_HEAD,
    TASKS,
    Case,
    Job,
    candidates,
    cost,
    glue_case,
    jobs_of,
    located,
    minutes,
    number_of_seeds,
    page,
    run_all,
    run_case,
    scores_row,
    search,
    searched_rows,
    settings_of,
    several,
    shown,
)
from finetune_worth import worth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GLUE = {
    "MRPC": (glue_case("mrpc", "mrpc", "MRPC", settings={"epochs": 4}), ("f1", "accuracy"), 87.0),
    "STS-B": (glue_case("stsb", "stsb", "STS-B", settings={"epochs": 4}), ("spearman", "pearson"), 85.0),
    "CoLA": (glue_case("cola", "cola", "CoLA", settings={"epochs": 4}), ("matthews", "accuracy"), 27.0),
    "SST-2": (glue_case("sst2", "sst2", "SST-2", settings={"epochs": 2}), ("accuracy",), 90.0),
    "RTE": (glue_case("rte", "rte", "RTE", settings={"epochs": 4}), ("accuracy",), None),
}
RATES = ({"optimizer.rate": 5e-5}, {"optimizer.rate": 1e-4})
GRID = (*RATES, *({"batch.size": 16, **rate} for rate in RATES))
# MRPC is small, and with four epochs its other seeds stayed below the first: some candidates are twice as long, others
# are held back less or more, and one has a pooler that is new (MiniLM's own was never trained, and has shrunk). The
# last two have a high rate that falls from layer to layer, as ELECTRA's small models do (Clark et al., 2020,
# appendix B).
FOR_MRPC = (
    {"epochs": 8, "batch.size": 16, **RATES[0]},
    {"epochs": 8, **RATES[1]},
    {"batch.size": 16, "dropout": 0.0, **RATES[1]},
    {"batch.size": 16, "layer_decay": 0.9, **RATES[1]},
    {"batch.size": 8, **RATES[0]},
    {"batch.size": 16, "fresh_layers": 1, **RATES[1]},
    {"layer_decay": 0.8, "optimizer.rate": 3e-4},
    {"batch.size": 16, "layer_decay": 0.8, "optimizer.rate": 2e-4},
)
# Whether two sentences say the same does not depend on their order. That was tried on seeds 1 and 2, where the settings
# found with one order do worst, and costs one and a half times as much with three epochs for four.
BOTH_ORDERS = {"epochs": 3, "task.both_orders": True}
TRIED_FIRST = (1, 2)
ONE_ORDER, TENTH = "MRPC, one order", "a tenth of SST-2"


def glue(options: Any) -> int:
    """GLUE's dev sets, and the Trainer beside us."""
    names = [name for name in GLUE if not options.only or options.only in name]
    searched = {name: (GLUE[name][0], GRID) for name in ("STS-B", "CoLA") if name in names}
    if "SST-2" in names:
        searched["SST-2"] = (GLUE["SST-2"][0], RATES)
        searched["tenth"] = (glue_case("sst2-tenth", "sst2", "SST-2", settings={"epochs": 2}, rows=6735), RATES)
    if "MRPC" in names or "RTE" in names:  # RTE has no target, and is trained as the other small set of pairs
        searched["MRPC"] = (GLUE["MRPC"][0], (*GRID, *FOR_MRPC))
    best = dict(zip(searched, search(*searched.values()), strict=True))
    chosen = {name: (best.get(name, GLUE[name][0]), GLUE[name][1]) for name in names}
    if "RTE" in chosen:
        chosen["RTE"] = (replace(GLUE["RTE"][0], settings=best["MRPC"].settings), GLUE["RTE"][1])
    if "MRPC" in chosen:
        chosen[ONE_ORDER] = chosen["MRPC"]
        chosen["MRPC"] = (best["MRPC"].with_settings(BOTH_ORDERS), GLUE["MRPC"][1])
    if "tenth" in best:
        chosen[TENTH] = (best["tenth"], GLUE["SST-2"][1])
    beside = [name for name in (ONE_ORDER, "CoLA", TENTH) if name in chosen]
    seeds = {name: peer_seeds(chosen[name][0], options) for name in beside}
    ours = jobs_of(options, *([case] for case, _ in chosen.values()))
    run_all([*ours, *(Job(chosen[name][0], seed, peer=True) for name in beside for seed in seeds[name])])
    rows, verdicts, peers = [], [], []
    for name, (case, measures) in chosen.items():
        target = GLUE[name][2] if name in GLUE else None
        scores = several(case, options)
        cells = (name, settings_of(case), " / ".join(shown(scores, one) for one in measures), cost(case))
        rows.append(f"| {' | '.join(cells)} |")
        if target is not None:
            mean = 100 * statistics.fmean(score[measures[0]] for score in scores)
            verdicts.append((f"{name}, {measures[0]}", f"at least {target:g}", f"{mean:.1f}", mean >= target))
    for name in beside:
        case, (measure, *_) = chosen[name]
        ours, theirs = ([run_case(case, seed, peer=peer)["scores"] for seed in seeds[name]] for peer in (False, True))
        gaps = [100 * (mine[measure] - other[measure]) for mine, other in zip(ours, theirs, strict=True)]
        ahead, error = mean_and_error(gaps)
        each = f"{', '.join(f'{gap:+.1f}' for gap in gaps)} (seeds {', '.join(map(str, seeds[name]))})"
        peers.append(f"| {name}, {measure} | {shown(ours, measure)} | {shown(theirs, measure)} | {each} |")
        measured = f"{ahead:+.1f} ± {error:.1f}"
        verdicts.append((f"{name}: not below the Trainer", "within a standard error", measured, ahead >= -error))
    about = (
        "GLUE's dev sets with MiniLM. Settings are the best on seed 0, as the last table has it; RTE has MRPC's. MRPC "
        "is also read both ways round, at the same rate, in three epochs for four, which was tried first on seeds 1 "
        "and 2, where one order does worst; the Trainer has no such thing, and stands beside MRPC in one order. "
        "RTE's commoner class alone would give 52.7. "
        "Percent: mean ± standard deviation (least–most) over seeds, the best epoch of each; seed 0, which settings "
        "were chosen on, is among them. The Trainer takes longer, and was run on three of our seeds at least; the "
        "difference is ours less the Trainer's, seed by seed, and its error the standard error of their mean."
    )
    gains = both_orders_gain(chosen, options) if "MRPC" in chosen else []
    lines = [f"| task | settings | score | {COST[0]} |", "|---|---|---|---|", *rows, "",
             "| the same rows in the same order | bertsmith | Trainer | differences, seeds |", "|---|---|---|---|",
             *peers, "", *gains,
             *harness.verdict_table(verdicts, measured="measured"), "", *searched_rows(searched)]  # fmt: skip
    cases = [*(case for case, _ in chosen.values()), *candidates(searched)]
    page("finetune-glue", "Fine-tuning on GLUE", about, lines, cases, options)
    return 0 if all(met for *_, met in verdicts) else 1


def peer_seeds(case: Case, options: Any) -> list[int]:
    """Those of ours that the Trainer is run with: the last three at most, and any besides that it was run with."""
    number = number_of_seeds([case], options)
    last = range(min(1, number - 1), number)[-3:]
    return [seed for seed in range(number) if seed in last or KEPT.find(case.key(seed, peer=True)) is not None]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """And the standard error of the mean."""
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def both_orders_gain(chosen: dict[str, tuple[Case, tuple[str, ...]]], options: Any) -> list[str]:
    """What reading MRPC both ways round gains, seed by seed; and on those alone that it was not tried on first."""
    both, one = (several(chosen[name][0], options) for name in ("MRPC", ONE_ORDER))
    gains = [100 * (after["f1"] - before["f1"]) for after, before in zip(both, one, strict=True)]
    unseen = [gain for seed, gain in enumerate(gains) if seed not in TRIED_FIRST]
    each = ", ".join(f"{gain:+.1f}" for gain in gains)
    of_all, of_unseen = ("{:+.1f} ± {:.1f}".format(*mean_and_error(some)) for some in (gains, unseen or gains))
    return [
        f"Both orders gain {of_all} points of F1 on MRPC, mean and its standard error ({each}); {of_unseen} on the "
        "seeds that they were not tried on first.",
        "",
    ]


def conll(options: Any) -> int:
    """Entities, with and without the document around a sentence."""
    files = {"train": "conll2003/train.txt", "dev": "conll2003/dev.txt", "test": "conll2003/test.txt"}
    rates = ({"optimizer.rate": 2e-4}, {"optimizer.rate": 4e-4})
    searched = {"conll": (Case("conll", "conll2003", settings={"epochs": 4}, **files), rates)}
    (plain,) = search(*searched.values())
    around = {"task.context": True, "batch.size": 8}
    context = replace(plain, name="conll-context", settings={**plain.settings, **around})
    both = (plain, context)
    run_all(jobs_of(options, both))
    found = {case.name: [several(case, options, of, both) for of in ("scores", "test")] for case in both}
    rows = [
        f"| {name} | {settings_of(case)} | {' | '.join(shown(one, 'f1') for one in found[case.name])} | {cost(case)} |"
        for name, case in (("sentences alone", plain), ("with the document around them", context))
    ]
    means = {name: [100 * statistics.fmean(one["f1"] for one in each) for each in sets] for name, sets in found.items()}
    dev, test = (after - before for before, after in zip(means[plain.name], means[context.name], strict=True))
    reached = means[plain.name][0]
    tokens, seconds = run_case(context, 0)["tokens"] / run_case(plain, 0)["tokens"], minutes(context) / minutes(plain)
    verdicts = [
        ("dev F1 without context", "at least 91", f"{reached:.1f}", reached >= 91),
        ("tokens read with the document around, against without", "at most 2×", f"{tokens:.2f}×", tokens <= 2),
        ("seconds of training, the same", "at most 2×", f"{seconds:.2f}×", seconds <= 2),
    ]
    about = (
        "CoNLL-2003, entity F1 by span in percent: mean ± standard deviation (least–most) over seeds. The rate "
        "is the best of 2e-4 and 4e-4 on seed 0, the model that of the best epoch on dev. A batch of 8 windows of 128 "
        "pieces has about as many words as "
        "32 sentences."
    )
    lines = [f"| | settings | dev F1 | test F1 | {COST[0]} |", "|---|---|---|---|---|", *rows, "",
             f"The document around a sentence gains {dev:+.1f} points of F1 on dev, {test:+.1f} on test.", "",
             *harness.verdict_table(verdicts, measured="measured"), "", *searched_rows(searched)]  # fmt: skip
    page("finetune-conll", "Fine-tuning on CoNLL-2003", about, lines, [*both, *candidates(searched)], options)
    return 0 if all(met for *_, met in verdicts) else 1


def chinese(options: Any) -> int:
    """Chinese sets with m3e-small."""

    def case(name: str, preset: str, train: str, dev: str, **more: Any) -> Case:
        return Case(name, preset, train, dev, model="m3e-small", **more)

    high = {"epochs": 3, "optimizer.rate": 1e-4}
    tagging = {"epochs": 6, "optimizer.rate": 2e-4}
    cases = [
        (case("chnsenticorp", "chnsenticorp", "zh/chnsenticorp/train.tsv", "zh/chnsenticorp/dev.tsv",
              settings={"epochs": 2, "optimizer.rate": 5e-5}, test="zh/chnsenticorp/test.tsv"), ("accuracy",)),
        (case("thucnews", "thucnews", "zh/thucnews/train.tsv", "zh/thucnews/dev.tsv", settings=high, rows=10_000,
              test="zh/thucnews/test.tsv"), ("accuracy", "macro_f1")),
        (case("lcqmc", "lcqmc", "zh/lcqmc/train.tsv", "zh/lcqmc/dev.tsv", settings=high), ("accuracy", "f1")),
        (case("ocnli", "ocnli", "zh/ocnli/train.tsv", "zh/ocnli/dev.tsv", settings=high), ("accuracy",)),
        (case("weibo", "weibo", "zh/ner-weibo/train.txt", "zh/ner-weibo/dev.txt", settings=tagging,
              test="zh/ner-weibo/test.txt"), ("f1",)),
        (case("resume", "resume", "zh/ner-resume/train.txt", "zh/ner-resume/dev.txt", settings=tagging,
              test="zh/ner-resume/test.txt"), ("f1",)),
        (case("cmrc", "cmrc2018", "squad-like/cmrc2018.train.json", "squad-like/cmrc2018.dev.json",
              settings={**high, "evaluation.every": 10_000}, rows=800), ("exact_match", "f1")),
    ]  # fmt: skip
    cases = [(one, measures) for one, measures in cases if options.only in one.name]
    searched = {one.name: (one, ({}, FEW_QUESTIONS[-1])) for one, _ in cases if one.name == "cmrc"}
    best = dict(zip(searched, search(*searched.values()), strict=True))
    cases = [(best.get(one.name, one), measures) for one, measures in cases]
    run_all(jobs_of(options, *([one] for one, _ in cases)))
    rows, verdicts = [], []
    for one, measures in cases:
        scores = several(one, options)
        rows.append(scores_row(one, measures, options))
        if one.preset in ("weibo", "resume"):
            theirs = [run_case(one, seed)["seqeval"] for seed in range(len(scores))]
            furthest = max(abs(score["f1"] - other) for score, other in zip(scores, theirs, strict=True))
            verdicts.append(
                (f"{one.name}: F1 as seqeval has it", "equal", f"differs by {furthest:.0e} at most", furthest < 1e-9)
            )
    about = (
        "Chinese sets with m3e-small, dev scores in percent, of the best epoch there: mean ± standard deviation "
        "(least–most) over seeds; and of the same models on the test file, where there is one. thucnews: the "
        "first 10,000 rows; CMRC: the first 800 questions, scored by character, at the end of training, with the "
        "better of two settings."
    )
    lines = [*SCORES_HEAD, *rows, "", *harness.verdict_table(verdicts, measured="measured"), "",
             *searched_rows(searched)]  # fmt: skip
    every = [*(one for one, _ in cases), *candidates(searched)]
    page("finetune-chinese", "Fine-tuning on Chinese sets", about, lines, every, options)
    return 0 if all(met for *_, met in verdicts) else 1


# A thousand questions in batches of 32 are some hundred steps, too few for a model that knows nothing of spans.
FEW_QUESTIONS = (
    {"optimizer.rate": 1e-4},
    {"batch.size": 8, "optimizer.rate": 1e-4},
    {"batch.size": 8, "optimizer.rate": 2e-4},
)

EPOCHS = ({"epochs": 2}, {"epochs": 4})  # the paper's for SQuAD 2.0, which has 25 times as many questions; and more


def answers(options: Any) -> int:
    """Questions, and choices."""
    few = Case("xquad", "squad1", "squad-like/xquad.en.train.json", "squad-like/xquad.en.dev.json", {"epochs": 3})
    (xquad,) = search((few, FEW_QUESTIONS))
    files = "squad-like/squad-v2.train.json", "squad-like/squad-v2.dev.json"
    many = Case("squad2", "squad2", *files, {"batch.size": 32, **xquad.settings})
    searched = {"xquad": (few, FEW_QUESTIONS), "squad2": (many, EPOCHS)}
    (squad2,) = search(searched["squad2"])
    cases = [
        (squad2, ("exact_match", "f1")),
        (xquad, ("exact_match", "f1")),
        (Case("openbookqa", "openbookqa", "openbookqa/train.jsonl", "openbookqa/dev.jsonl",
              {"epochs": 3, "optimizer.rate": 1e-4}, test="openbookqa/test.jsonl"), ("accuracy",)),
    ]  # fmt: skip
    cases = [(one, measures) for one, measures in cases if options.only in one.name]
    run_all(jobs_of(options, *([one] for one, _ in cases)))
    rows, note = [], ""
    for case, measures in cases:
        rows.append(scores_row(case, measures, options))
        if case.name == "squad2":
            number = number_of_seeds([case], options)
            tuned = [run_case(case, seed)["tuned"] for seed in range(number)]
            parts = [run_case(case, seed)["scores"] for seed in range(number)]
            note = (
                f"squad2: thresholds for no answer {', '.join(f'{each:.2f}' for each in tuned)}. Questions with an "
                f"answer alone: F1 {shown(parts, 'has_answer_f1')}; those without: right of them "
                f"{shown(parts, 'no_answer_accuracy')}. To answer none at all gives {100 * unanswered(case):.1f}."
            )
    about = (
        "Answers with MiniLM, dev scores in percent by the official rules, of the best epoch; squad-v2 with the "
        "threshold that is best "
        "for F1 on that dev file (the official script tunes one for each of its figures). xquad has 1,018 training "
        "questions, and settings that are the best on seed 0; squad-v2 has the same, with epochs of its own. "
        "OpenBookQA: one of four choices."
    )
    lines = [*SCORES_HEAD, *rows, "", note, "", *searched_rows(searched)]
    every = [*(one for one, _ in cases), *candidates(searched)]
    page("finetune-answers", "Answers and choices", about, lines, every, options)
    return 0


def unanswered(case: Case) -> float:
    """The share of a dev file's questions that have no answer."""
    task = make_task("answer", case.request(0).options)
    return statistics.fmean(not example.answers for example in task.read(str(located(case.dev))))


def long(options: Any) -> int:
    """Six ways to read a text that is too long."""
    together = "runs/finetune/movie-reviews.tsv"
    joined = ROOT / together
    if not joined.exists():
        joined.parent.mkdir(parents=True, exist_ok=True)
        parts = [(TASKS / f"long/movie_reviews/{name}.tsv").read_bytes() for name in ("dev", "test")]
        write_whole(joined, lambda file: file.writelines(parts))
    base = {
        "epochs": 2,
        "optimizer.rate": 1e-4,
        "batch.size": 16,
        "task.columns": {"label": 1, "text": 2},
        "task.max_length": 512,
        "dropout": 0.0,
        "evaluation.every": 10_000,
    }  # evaluated at the last step alone: it is a test
    modes: dict[str, dict[str, Any]] = {mode: {"task.long.mode": mode} for mode in ("head", "tail", "head+tail")}
    modes |= {
        f"segments, {pool}": {"task.long.mode": "segments", "task.long.pool": pool}
        for pool in ("max", "mean", "attention")
    }
    cases = {
        name: Case(f"long-{name.replace(', ', '-')}", "", "long/movie_reviews/train.tsv", together,
                   {**base, **change}, rows=600, kind="classify", paired=True)
        for name, change in modes.items() if options.only in name
    }  # fmt: skip
    run_all(jobs_of(options, list(cases.values())))
    rows, correct = [], {}
    for name, case in cases.items():
        scores = several(case, options, beside=list(cases.values()))
        right = [[int(one) for one in run_case(case, seed)["right"]] for seed in range(len(scores))]
        correct[name] = [statistics.fmean(each) for each in zip(*right, strict=True)]
        rows.append((name, shown(scores, "accuracy"), cost(case)))
    lines = [f"| mode | accuracy | {COST[0]} |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]
    pools = [name for name in correct if name.startswith("segments")]
    others = [(name, "head") for name in correct if name != "head"] if "head" in correct else []
    lines += compared([(*pair, correct[pair[0]], correct[pair[1]]) for pair in (*others, *combinations(pools, 2))])
    about = (
        "600 movie reviews for training, two epochs without dropout, MiniLM with 512 pieces; dev and test of "
        "the set together are one "
        "test of 400. Percent: mean ± standard deviation (least–most) over seeds, each judged once, at its end. "
        "Differences are judged by a paired bootstrap over the 400 reviews (each the mean of its seeds): it says how "
        "far other reviews would change them, not other seeds; p as it is, and by Holm's rule for all of them together."
    )
    page("finetune-long", "Text longer than the model", about, lines, list(cases.values()), options)
    return 0


def compared(pairs: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]) -> list[str]:
    """Differences of some from others, their intervals, and how likely they are to be none, by themselves and all."""
    found = [paired_bootstrap(ours, theirs) for _, _, ours, theirs in pairs]
    rows = [
        f"| {one} − {other} | {100 * each.difference:+.1f} ({100 * each.low:+.1f} to {100 * each.high:+.1f}) | "
        f"{each.p_value:.3f} | {holm:.3f} |"
        for (one, other, _, _), each, holm in zip(pairs, found, by_holm([each.p_value for each in found]), strict=True)
    ]
    return ["| what | difference, 95% | p | p by Holm |", "|---|---|---|---|", *rows]


def by_holm(values: Sequence[float]) -> list[float]:
    """P values for several comparisons at once (Holm, 1979): the least counts for all, the next for one fewer."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    found, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        found[place] = highest
    return found


PARTS: dict[str, Callable[[Any], int]] = {
    "glue": glue, "conll": conll, "chinese": chinese, "answers": answers, "long": long, "worth": worth,
}  # fmt: skip
