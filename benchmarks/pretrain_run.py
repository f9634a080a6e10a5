"""A whole pre-training run on ../shared/data, kept as a page with curves: `make results NAME=pretrain ARGS='--run en'`.

`en`: mini, a vocabulary of 16,000, en-general and en-web. `zh`: mini, a vocabulary of 12,000, zh-web, words found by
the segmenter and masked whole. The run stays in runs/ and goes on there if it is interrupted.
"""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import harness
from bertsmith.bundle.resolve import load_bundle
from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.infer.engine import load
from bertsmith.jobs.pretrain import make_request, pretrain
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.model.heads import PreTrainingModel
from bertsmith.pretraining.evaluation import Evaluation
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.request import read_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.pretraining.settings import Budget
from bertsmith.pretraining.work import Objective
from bertsmith.train.distributed import World
from bertsmith.train.metrics import read_log

if TYPE_CHECKING:
    from bertsmith.jobs.pretrain import Result

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT.parent / "shared" / "data" / "corpus"
TOP = 3


@dataclass(frozen=True)
class Language:
    """What a run is made of."""

    files: tuple[str, ...]
    vocab_size: int
    options: ShardOptions
    minutes: float

    @property
    def paths(self) -> list[str]:
        """Where the files are."""
        return [str(CORPORA / file) for file in self.files]


LANGUAGES = {
    "en": Language(("en-general.jsonl", "en-web.jsonl"), 16_000, ShardOptions(), 90),
    "zh": Language(("zh-web.jsonl",), 12_000, ShardOptions(words="chinese"), 30),
}


def run_language(name: str, minutes: float | None, *, keep: bool) -> int:
    """Prepare, train or go on, compare with `transformers`, print."""
    language, tokenizer = LANGUAGES[name], make_vocabulary(name)
    home = tokenizer.parent
    build_shards(language.paths, open_tokenizer(str(tokenizer)), home / "shards", options=language.options, workers=2)
    budget = Budget(minutes=minutes or language.minutes)
    result = pretrain(make_request(home / "shards", size="mini", budget=budget), home / "run", resume=True)
    if result.model is None:
        return 1
    if keep:
        for picture in ("loss-words", "loss-pairs", "accuracy"):
            shutil.copyfile(
                home / "run" / "plots" / f"{picture}.png", harness.RESULTS / f"pretrain-{name}-{picture}.png"
            )
    same = agrees_with_transformers(result)
    harness.show(
        f"pretrain-{name}", f"A BERT-mini from {' and '.join(language.files)}", page(name, result, same), keep=keep
    )
    return 0 if same == len(gaps_of(result)) else 1


def make_vocabulary(name: str) -> Path:
    """The folder of a language's vocabulary, which is learned where it is missing: always the same."""
    folder = ROOT / "runs" / f"pretrain-{name}" / "vocab"
    if not folder.exists():
        vocab(LANGUAGES[name].paths, output=folder, options=VocabOptions(size=LANGUAGES[name].vocab_size))
    return folder


def gaps_of(result: Result) -> list[dict[str, Any]]:
    """The last fills of the log."""
    found = [entry for entry in read_log(result.folder / "metrics.jsonl") if entry["kind"] == "fill"]
    return [entry for entry in found if entry["step"] == found[-1]["step"]]


def agrees_with_transformers(result: Result) -> int:
    """For how many gaps the fill-mask pipeline, on the model folder, names the same candidates as we do."""
    from transformers import pipeline

    theirs = pipeline("fill-mask", model=str(result.model), top_k=TOP)
    ours, tokenizer = load(str(result.model)), open_tokenizer(str(result.model))
    agreeing = 0
    for gap in gaps_of(result):
        found = [candidate["token"] for candidate in theirs(gap["text"])]
        agreeing += found == [tokenizer.id_of(candidate.token) for candidate in ours.fill(gap["text"], top=TOP)[0]]
    return agreeing


@torch.no_grad()
def long_figures(run: PretrainingRun, result: Result) -> dict[str, float]:
    """Those of the finished model on held-out text of the last phase's length."""
    last = run.settings.phases[-1].model_copy(update={"share": 1.0})
    settings = run.settings.model_copy(update={"phases": (last,)})
    model = load_bundle(str(result.model)).model
    assert isinstance(model, PreTrainingModel)
    return Evaluation(run.held_out, run.tokenizer, settings, World())(Objective(model.eval()))


@torch.no_grad()
def shuffled_loss(run: PretrainingRun, result: Result) -> float:
    """The held-out loss of masked words with the rows of the position table in another order, [CLS] in its place.

    A model that does not use word order has the same loss as before.
    """
    model = load_bundle(str(result.model)).model
    assert isinstance(model, PreTrainingModel)
    table = model.encoder.embeddings.position.weight
    places = 1 + torch.randperm(run.settings.phases[0].max_length - 1, generator=torch.Generator().manual_seed(0))
    table[1 : len(places) + 1] = table[places]
    return run.evaluation(Objective(model.eval()))["mlm_loss"]


def page(name: str, result: Result, same: int) -> list[str]:
    """What came out."""
    entries = list(read_log(result.folder / "metrics.jsonl"))
    evaluations = [entry for entry in entries if entry["kind"] == "eval"]
    last = evaluations[-1]
    settings = json.loads((result.folder / "config.json").read_text())
    rows = [
        f"| {entry['step']:,} | {entry['seconds'] / 60:.0f} | {entry['mlm_loss']:.3f} | {entry['perplexity']:,.1f} | "
        f"{entry['mlm_accuracy']:.1%} | {entry['pair_accuracy']:.1%} |"
        for entry in [*evaluations[: -1 : max(1, len(evaluations) // 10)], last]
    ]
    fills = {entry["text"]: entry for entry in entries if entry["kind"] == "fill"}
    gaps = [
        f"| {text} | {entry['answer']} | {', '.join(f'{piece} {score:.0%}' for piece, score in entry['candidates'])} |"
        for text, entry in fills.items()
    ]
    steps = [entry for entry in entries if entry["kind"] == "train"]
    done = result.progress
    run = PretrainingRun(read_request(result.folder), result.folder, World(), Observer())
    longest, at_length = run.settings.phases[-1].max_length, long_figures(run, result)
    return [
        (__doc__ or "").strip(),
        "",
        f"{done.step:,} steps, {done.tokens:,} tokens in {done.seconds / 60:.1f} minutes of training (one seed); "
        f"{statistics.median(entry['tokens_per_second'] for entry in steps):,.0f} tokens a second at the median, "
        f"{statistics.median(entry['share_of_peak'] for entry in steps):.0%} of the peak measured at the start; "
        f"{result.plan.parameters:,} parameters. Peak when this page was made: "
        f"{harness.describe_peaks([harness.measure_peak()])}. {harness.describe_step(run.make_loop(done.step).work)}",
        "",
        "| | held out | always the commonest |",
        "|---|---|---|",
        f"| masked words, accuracy | {last['mlm_accuracy']:.1%} | {result.baselines['mlm_accuracy']:.1%} |",
        f"| masked words, perplexity | {last['perplexity']:.1f} | |",
        f"| next sentence, accuracy | {last['pair_accuracy']:.1%} | {result.baselines['pair_accuracy']:.1%} |",
        f"| masked words in text of up to {longest} tokens, accuracy | {at_length['mlm_accuracy']:.1%} | |",
        f"| the same, perplexity | {at_length['perplexity']:.1f} | |",
        "",
        f"The fill-mask pipeline of `transformers` on the model folder names the same {TOP} candidates as "
        f"`bertsmith fill` for {same} of {len(gaps_of(result))} gaps.",
        "",
        f"With the rows of the position table shuffled, and so without word order, the loss of masked words is "
        f"{shuffled_loss(run, result):.2f} and not {last['mlm_loss']:.2f}.",
        "",
        f"![loss of masked words](pretrain-{name}-loss-words.png) ![loss of pairs](pretrain-{name}-loss-pairs.png) "
        f"![accuracy](pretrain-{name}-accuracy.png)",
        "",
        "| step | minutes | loss | perplexity | masked words | pairs |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "| gap in held-out text | stood there | candidates at the end |",
        "|---|---|---|",
        *gaps,
        "",
        f"Settings: `{json.dumps(settings['settings'], ensure_ascii=False)}`",
        "",
        harness.versions("transformers"),
    ]
