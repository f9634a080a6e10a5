"""Scores of fine-tuning on real sets: what is run, and the pages. See benchmarks/finetune.py."""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.request import make_request
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.folders import write_whole
from bertsmith.jobs.evaluate import evaluate
from bertsmith.jobs.finetune import finetune
from bertsmith.tasks.scores import paired_bootstrap
from bertsmith.train.distributed import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT.parent / "shared" / "data" / "tasks"
RUNS = ROOT / "runs" / "finetune"
MINI = ROOT / "runs" / "pretrain-en" / "run"


@dataclass(frozen=True)
class Case:
    """A task with its settings; `test` is a further file to be judged on."""

    name: str
    preset: str
    train: str
    dev: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: str = "minilm"
    rows: int | None = None
    test: str | None = None
    kind: str | None = None

    def request(self, seed: int) -> Any:
        """What is asked for."""
        return make_request(
            self.model,
            preset=self.preset or None,
            kind=self.kind,
            train=TASKS / self.train,
            dev=TASKS / self.dev,
            rows=self.rows,
            changes={**self.settings, "seed": seed},
        )

    def key(self, seed: int) -> str:
        """Its folder; settings are part of it."""
        changes = "-".join(f"{name.split('.')[-1]}={value:g}" if isinstance(value, int | float) else f"{name}={value}"
                           for name, value in sorted(self.settings.items()))  # fmt: skip
        return f"{self.name}/{changes or 'default'}/{seed}".replace("+", "-")


def run_case(case: Case, seed: int) -> dict[str, Any]:
    """Scores of one run, now or earlier; weights are not kept."""
    folder = RUNS / case.key(seed)
    kept = folder / "kept.json"
    if not kept.exists():
        print(case.key(seed), flush=True)
        result = finetune(case.request(seed), folder, resume=True, observer=Notes())
        assert result.model is not None, result.stopped_by
        done = result.progress
        content: dict[str, Any] = {"scores": result.scores, "seconds": done.seconds, "tokens": done.tokens}
        if case.test is not None:
            content["test"] = evaluate(str(folder), data=str(TASKS / case.test))
        text = json.dumps(content)
        write_whole(kept, lambda file: file.write(text.encode()))
        for name in ("checkpoints", "model", "tensorboard"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return json.loads(kept.read_text())


def run_peer(case: Case, seed: int) -> dict[str, float]:
    """The Trainer's scores for the same run."""
    kept = RUNS / f"trainer-{case.key(seed)}.json"
    if not kept.exists():
        from trainer import best_scores

        print(f"trainer, {case.key(seed)}", flush=True)
        run = FinetuningRun(case.request(seed), RUNS / "none", World(), Observer())
        text = json.dumps(best_scores(run))
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, lambda file: file.write(text.encode()))
    return json.loads(kept.read_text())


class Notes(Observer):
    """Evaluations, printed."""

    def on_evaluation(self, figures: dict[str, float], step: int) -> None:
        """One line."""
        print(
            f"  step {step}: {', '.join(f'{name} {value:.4f}' for name, value in list(figures.items())[:4])}",
            flush=True,
        )


def search(case: Case, rates: Sequence[float]) -> Case:
    """The case with the best of several rates, on seed 0."""
    tried = [replace(case, settings={**case.settings, "optimizer.rate": rate}) for rate in rates]
    metric = case.request(0).options["metric"]
    return max(tried, key=lambda one: run_case(one, 0)["scores"][metric])


def several(case: Case, options: Any, of: str = "scores") -> list[dict[str, float]]:
    """The scores of all seeds: five where a run takes less than 5 minutes, three below 12, else one."""
    minutes = run_case(case, 0)["seconds"] / 60
    number = next(count for limit, count in ((5, 5), (12, 3), (float("inf"), 1)) if minutes < limit)
    return [run_case(case, seed)[of] for seed in range(min(number, options.seeds or number))]


def shown(scores: Sequence[dict[str, float]], name: str) -> str:
    """Mean and spread, in percent."""
    values = [100 * score[name] for score in scores]
    if len(values) == 1:
        return f"{values[0]:.1f} (one seed)"
    spread = f"{min(values):.1f}–{max(values):.1f}, {len(values)} seeds"
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} ({spread})"


def minutes(case: Case) -> str:
    """Of the first seed's training."""
    return f"{run_case(case, 0)['seconds'] / 60:.1f}"


def settings_of(case: Case) -> str:
    """As people read them."""
    return ", ".join(f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
                     for name, value in case.settings.items())  # fmt: skip


def page(name: str, title: str, about: str, lines: Sequence[str], options: Any) -> None:
    """Print, and keep where all of it was run."""
    peak = harness.describe_peaks([harness.measure_peak()])
    tail = ["", f"Peak of this machine in float32 when the page was made: {peak}. Operations: see "
            "[finetune-speed](finetune-speed.md).", "", harness.versions("transformers", "accelerate")]  # fmt: skip
    harness.show(name, title, [about, "", *lines, *tail], keep=options.keep and not (options.only or options.seeds))


def _glue(name: str, preset: str, folder: str, **more: Any) -> Case:
    return Case(name, preset, f"glue/{folder}/train.tsv", f"glue/{folder}/dev.tsv", **more)


GLUE = {
    "MRPC": (_glue("mrpc", "mrpc", "MRPC", settings={"epochs": 4}), ("f1", "accuracy"), 87.0),
    "STS-B": (_glue("stsb", "stsb", "STS-B", settings={"epochs": 4}), ("spearman", "pearson"), 85.0),
    "CoLA": (_glue("cola", "cola", "CoLA", settings={"epochs": 4}), ("matthews", "accuracy"), 27.0),
    "SST-2": (_glue("sst2", "sst2", "SST-2", settings={"epochs": 2}), ("accuracy",), 90.0),
    "RTE": (_glue("rte", "rte", "RTE", settings={"epochs": 4}), ("accuracy",), None),
}
RATES = (5e-5, 1e-4, 2e-4)


def glue(options: Any) -> int:
    """GLUE's dev sets, and the Trainer beside us."""
    tenth = _glue("sst2-tenth", "sst2", "SST-2", settings={"epochs": 2}, rows=6735)
    rows, verdicts, chosen = [], [], {}
    for name, (case, measures, target) in GLUE.items():
        if options.only and options.only not in name:
            continue
        if name == "SST-2":  # what is best for a tenth of it is taken for all
            found = search(tenth, RATES)
            chosen["a tenth of SST-2"] = (found, ("accuracy",))
            case = replace(case, settings={**case.settings, "optimizer.rate": found.settings["optimizer.rate"]})
        else:
            case = search(case, RATES)
        chosen[name] = (case, measures)
        scores = several(case, options)
        cells = (name, settings_of(case), " / ".join(shown(scores, one) for one in measures), minutes(case))
        rows.append(f"| {' | '.join(cells)} |")
        if target is not None:
            mean = 100 * statistics.fmean(score[measures[0]] for score in scores)
            verdicts.append((f"{name}, {measures[0]}", f"at least {target:g}", f"{mean:.1f}", mean >= target))
    peers = []
    for name in ("MRPC", "CoLA", "a tenth of SST-2"):
        if name not in chosen:
            continue
        case, measures = chosen[name]
        ours = several(case, options)
        theirs = [run_peer(case, seed) for seed in range(len(ours))]
        measure = measures[0]
        mine, other = ([score[measure] for score in scores] for scores in (ours, theirs))
        wide = max(statistics.stdev(values) if len(values) > 1 else 0.0 for values in (mine, other))
        peers.append(f"| {name}, {measure} | {shown(ours, measure)} | {shown(theirs, measure)} |")
        behind = statistics.fmean(other) - statistics.fmean(mine)
        verdicts.append(
            (f"{name}: not below the Trainer", "within the spread", f"{-100 * behind:+.1f}", behind <= wide)
        )
    about = (
        f"GLUE's dev sets with MiniLM; the rate is the best of {', '.join(f'{rate:g}' for rate in RATES)} on seed 0. "
        "Percent: mean ± standard deviation (least–most) over seeds, the best epoch of each."
    )
    lines = ["| task | settings | score | minutes a run |", "|---|---|---|---|", *rows, "",
             "| the same rows in the same order | bertsmith | Trainer |", "|---|---|---|", *peers, "",
             *harness.verdict_table(verdicts)]  # fmt: skip
    page("finetune-glue", "Fine-tuning on GLUE", about, lines, options)
    return 0 if all(met for *_, met in verdicts) else 1


def conll(options: Any) -> int:
    """Entities, with and without the document around a sentence."""
    files = {"train": "conll2003/train.txt", "dev": "conll2003/dev.txt", "test": "conll2003/test.txt"}
    plain = search(Case("conll", "conll2003", settings={"epochs": 4}, **files), (1e-4, 2e-4, 4e-4))
    context = replace(plain, name="conll-context", settings={**plain.settings, "task.context": True, "batch.size": 8})
    rows = []
    for name, case in (("sentences alone", plain), ("with the document around them", context)):
        scores, tests = several(case, options), several(case, options, "test")
        cells = (name, settings_of(case), shown(scores, "f1"), shown(tests, "f1"), minutes(case))
        rows.append(f"| {' | '.join(cells)} |")
    reached = 100 * statistics.fmean(score["f1"] for score in several(plain, options))
    cost = run_case(context, 0)["tokens"] / run_case(plain, 0)["tokens"]
    verdicts = [
        ("dev F1 without context", "at least 91", f"{reached:.1f}", reached >= 91),
        ("tokens read with the document around, against without", "at most 2×", f"{cost:.2f}×", cost <= 2),
    ]
    about = (
        "CoNLL-2003, entity F1 by span in percent: mean ± standard deviation (least–most) over seeds. The rate "
        "is the best of 1e-4, 2e-4 and 4e-4 on seed 0. A batch of 8 windows of 128 pieces has about as many words as "
        "32 sentences."
    )
    lines = ["| | settings | dev F1 | test F1 | minutes a run |", "|---|---|---|---|---|", *rows, "",
             *harness.verdict_table(verdicts)]  # fmt: skip
    page("finetune-conll", "Fine-tuning on CoNLL-2003", about, lines, options)
    return 0 if all(met for *_, met in verdicts) else 1


def chinese(options: Any) -> int:
    """Chinese sets with m3e-small."""
    from seqeval.metrics import f1_score

    def case(name: str, preset: str, train: str, dev: str, **more: Any) -> Case:
        return Case(name, preset, train, dev, model="m3e-small", **more)

    high = {"epochs": 3, "optimizer.rate": 1e-4}
    tagging = {"epochs": 6, "optimizer.rate": 2e-4}
    cases = [
        (case("chnsenticorp", "chnsenticorp", "zh/chnsenticorp/train.tsv", "zh/chnsenticorp/dev.tsv",
              settings={"epochs": 2, "optimizer.rate": 5e-5}), ("accuracy",)),
        (case("thucnews", "thucnews", "zh/thucnews/train.tsv", "zh/thucnews/dev.tsv", settings=high, rows=10_000),
         ("accuracy", "macro_f1")),
        (case("lcqmc", "lcqmc", "zh/lcqmc/train.tsv", "zh/lcqmc/dev.tsv", settings=high), ("accuracy", "f1")),
        (case("ocnli", "ocnli", "zh/ocnli/train.tsv", "zh/ocnli/dev.tsv", settings=high), ("accuracy",)),
        (case("weibo", "weibo", "zh/ner-weibo/train.txt", "zh/ner-weibo/dev.txt", settings=tagging), ("f1",)),
        (case("resume", "resume", "zh/ner-resume/train.txt", "zh/ner-resume/dev.txt", settings=tagging),
         ("f1",)),
        (case("cmrc", "cmrc2018", "squad-like/cmrc2018.train.json", "squad-like/cmrc2018.dev.json",
              settings={"epochs": 3, "optimizer.rate": 1e-4}, rows=800), ("exact_match", "f1")),
    ]  # fmt: skip
    rows, verdicts = [], []
    for one, measures in cases:
        if options.only not in one.name:
            continue
        scores = several(one, options)
        cells = (one.name, settings_of(one), " / ".join(f"{m} {shown(scores, m)}" for m in measures), minutes(one))
        rows.append(f"| {' | '.join(cells)} |")
        if one.preset in ("weibo", "resume"):
            run = FinetuningRun(one.request(0), RUNS / "none", World(), Observer())
            assert run.dev_split is not None
            golds = [list(example.tags) for example in run.dev_split.examples]
            guesses = [prediction["tags"] for prediction in predictions_of(one, 0)]
            theirs = float(f1_score(golds, guesses))
            same = abs(theirs - scores[0]["f1"]) < 1e-9
            verdicts.append(
                (f"{one.name}: F1 as seqeval has it", "equal", f"{scores[0]['f1']:.6f}, {theirs:.6f}", same)
            )
    about = (
        "Chinese sets with m3e-small, dev scores in percent: mean ± standard deviation (least–most) over seeds. "
        "thucnews: the first 10,000 rows; CMRC: the first 800 questions, scored by character."
    )
    lines = ["| set | settings | score | minutes a run |", "|---|---|---|---|", *rows, "",
             *harness.verdict_table(verdicts)]  # fmt: skip
    page("finetune-chinese", "Fine-tuning on Chinese sets", about, lines, options)
    return 0 if all(met for *_, met in verdicts) else 1


def predictions_of(case: Case, seed: int) -> list[dict[str, Any]]:
    """What a run said of the dev file."""
    lines = (RUNS / case.key(seed) / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def answers(options: Any) -> int:
    """Questions, and choices."""
    squad = {"epochs": 3, "optimizer.rate": 1e-4, "task.max_length": 256}
    cases = [
        (Case("squad2", "squad2", "squad-like/squad-v2.train.json", "squad-like/squad-v2.dev.json", squad),
         ("exact_match", "f1")),
        (Case("xquad", "squad1", "squad-like/xquad.en.train.json", "squad-like/xquad.en.dev.json", squad),
         ("exact_match", "f1")),
        (Case("openbookqa", "openbookqa", "openbookqa/train.jsonl", "openbookqa/dev.jsonl",
              {"epochs": 3, "optimizer.rate": 1e-4}, test="openbookqa/test.jsonl"), ("accuracy",)),
    ]  # fmt: skip
    rows = []
    for case, measures in cases:
        if options.only not in case.name:
            continue
        scores = several(case, options)
        figures = [f"{measure} {shown(scores, measure)}" for measure in measures]
        if case.test is not None:
            figures += [f"on its test file {shown(several(case, options, 'test'), measure)}" for measure in measures]
        rows.append(f"| {case.name} | {settings_of(case)} | {' / '.join(figures)} | {minutes(case)} |")
    about = (
        "Answers with MiniLM, dev scores in percent by the official rules; squad-v2 with the threshold that is best "
        "for F1 on that dev file (the official script tunes one for each of its figures). xquad has 1,018 training "
        "questions. OpenBookQA: one of four choices."
    )
    lines = ["| set | settings | score | minutes a run |", "|---|---|---|---|", *rows]
    page("finetune-answers", "Answers and choices", about, lines, options)
    return 0


def long(options: Any) -> int:
    """Six ways to read a text that is too long."""
    joined = RUNS / "movie-reviews.tsv"
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
        "evaluation.every": 10_000,
    }  # evaluated at the last step alone: it is a test
    modes: dict[str, dict[str, Any]] = {mode: {"task.long.mode": mode} for mode in ("head", "tail", "head+tail")}
    modes |= {
        f"segments, {pool}": {"task.long.mode": "segments", "task.long.pool": pool}
        for pool in ("max", "mean", "attention")
    }
    rows, correct = [], {}
    for name, change in modes.items():
        if options.only not in name:
            continue
        case = Case(f"long-{name.replace(', ', '-')}", "", "long/movie_reviews/train.tsv", str(joined),
                    {**base, **change}, rows=600, kind="classify")  # fmt: skip
        scores = several(case, options)
        golds = [line.split("\t")[0] for line in joined.read_text(encoding="utf-8").splitlines()]
        right = [
            [
                float(prediction["label"] == gold)
                for prediction, gold in zip(predictions_of(case, seed), golds, strict=True)
            ]
            for seed in range(len(scores))
        ]
        correct[name] = [statistics.fmean(each) for each in zip(*right, strict=True)]
        rows.append((name, shown(scores, "accuracy"), minutes(case)))
    lines = ["| mode | accuracy | against head, 95% | p | minutes a run |", "|---|---|---|---|---|"]
    for name, score, time in rows:
        if name == "head" or "head" not in correct:
            lines.append(f"| {name} | {score} | – | – | {time} |")
            continue
        found = paired_bootstrap(correct[name], correct["head"])
        between = f"{100 * found.difference:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
        lines.append(f"| {name} | {score} | {between} | {found.p_value:.3f} | {time} |")
    about = (
        "600 movie reviews for training, two epochs, MiniLM with 512 pieces; dev and test of the set together are one "
        "test of 400. Percent: mean ± standard deviation (least–most) over seeds, each judged once, at its end. "
        "Differences are judged by a paired bootstrap over the 400 reviews (each the mean of its seeds)."
    )
    page("finetune-long", "Text longer than the model", about, lines, options)
    return 0


def worth(options: Any) -> int:
    """What pre-training is worth: our mini after it, and with fresh weights."""
    if not (MINI / "model").is_dir():
        print("this needs the mini of `make results NAME=pretrain ARGS='--run en'`, which is not there", flush=True)
        return 1
    fresh = fresh_mini()
    settings = {"epochs": 4, "optimizer.rate": 3e-4}
    sets = [
        _glue("sst2-2000", "sst2", "SST-2", settings=settings, rows=2000),
        _glue("sst2-10000", "sst2", "SST-2", settings=settings, rows=10_000),
        _glue("mrpc", "mrpc", "MRPC", settings=settings),
        _glue("cola", "cola", "CoLA", settings=settings),
        Case("conll", "conll2003", "conll2003/train.txt", "conll2003/dev.txt", settings),
    ]
    rows = []
    for case in sets:
        if options.only not in case.name:
            continue
        metric = case.request(0).options["metric"]
        pair = [
            several(replace(case, name=f"worth-{case.name}-{kind}", model=str(model)), options)
            for kind, model in (("fresh", fresh), ("pretrained", MINI))
        ]
        gain = 100 * (statistics.fmean(s[metric] for s in pair[1]) - statistics.fmean(s[metric] for s in pair[0]))
        rows.append(f"| {case.name}, {metric} | {shown(pair[0], metric)} | {shown(pair[1], metric)} | {gain:+.1f} |")
    about = (
        "The mini of [pretrain-en](pretrain-en.md) against the same mini with the weights that its pre-training began "
        "with: dev scores in percent, "
        f"mean ± standard deviation (least–most) over seeds, {settings['epochs']} epochs, rate "
        f"{settings['optimizer.rate']:g}."
    )
    lines = ["| set | fresh weights | pre-trained | gain |", "|---|---|---|---|", *rows]
    page("finetune-worth", "What pre-training is worth", about, lines, options)
    return 0


def fresh_mini() -> Path:
    """A mini with the pre-trained one's vocabulary, as pre-training began: no training at all."""
    from bertsmith.bundle.folder import Bundle, read_bundle, write_bundle
    from bertsmith.model.heads import build
    from bertsmith.model.initial import look_at_neighbours

    folder = RUNS / "fresh-mini"
    if not folder.exists():
        bundle = read_bundle(MINI / "model")
        model = build(bundle.model.config, "pretraining", seed=0)
        look_at_neighbours(model.encoder)
        write_bundle(folder, Bundle(model, bundle.tokenizer, bundle.max_length), source="a benchmark, without training")
    return folder


PARTS: dict[str, Callable[[Any], int]] = {
    "glue": glue, "conll": conll, "chinese": chinese, "answers": answers, "long": long, "worth": worth,
}  # fmt: skip
