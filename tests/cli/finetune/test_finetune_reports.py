"""The report that a fine-tuning run writes."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from cli.finetune.lines import BEGIN, QUICK, SLOW, write_reviews
from finetuning.small_tasks import questions, read_json_lines, tagged, write_all_kinds
from report.pages import Page, check_alone


def test_a_run_writes_its_report(run, monkeypatch):
    """With the real report: a page of its own, which names the scores; and one of several runs."""
    for name in ("finetuning", "several"):
        monkeypatch.delitem(sys.modules, f"bertsmith.report.{name}")
    write_reviews()
    given = f"finetune MODEL --task classify --train a.tsv --dev a.tsv --epochs 2 {QUICK}"
    code, out, err = run(f"{given} --output run")
    assert code == 0, err
    code, _, err = run(f"{given} --output runs --seeds 1")
    assert code == 0, err
    assert "seed-000" in Path("runs/report.html").read_text(encoding="utf-8")
    page = Page(Path("run/report.html").read_text(encoding="utf-8"))
    assert out.split("accuracy: ")[1].split("\n")[0] in page.line
    check_alone(Path("run"))
    golds = [line.split("\t")[1] for line in Path("a.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    said = read_json_lines(Path("run/predictions.jsonl"))
    right = [gold == each["label"] for gold, each in zip(golds, said, strict=True)]
    by_tenth = defaultdict(list)
    for each, hit in zip(said, right, strict=True):
        by_tenth[min(int(10 * each["score"]), 9)].append((each["score"], hit))
    error = sum(abs(sum(score - hit for score, hit in tenth)) for tenth in by_tenth.values()) / len(said)
    assert f"Expected calibration error: {error:.1%}." in page.line
    assert [row[1] for row in page.tables["Calibration by confidence"][1:]] == [
        str(len(by_tenth[tenth])) for tenth in sorted(by_tenth)
    ]
    labels = sorted(set(golds))
    pairs = Counter(zip(golds, (each["label"] for each in said), strict=True))
    cells = page.tables["gold \\ guess"][1:]
    assert [[int(cell.split()[0]) for cell in row[1:]] for row in cells] == [
        [pairs[gold, guess] for guess in labels] for gold in labels
    ]
    mistakes = page.tables.get("Most confident mistakes", [[]])[1:]
    assert len(mistakes) == min(25, right.count(False))
    texts = [line.split("\t")[0] for line in Path("a.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    wrong = [(each["score"], text) for each, hit, text in zip(said, right, texts, strict=True) if not hit]
    assert mistakes
    assert [next(text for _, text in wrong if text in row) for row in mistakes] == [
        text for _, text in sorted(wrong, key=lambda pair: -pair[0])[:25]
    ]
    for row in page.tables["Scores of each class"][1:]:
        label, precision, recall, _, support = row
        hits = pairs[label, label]
        guessed = sum(count for (_, guess), count in pairs.items() if guess == label)
        assert int(support) == golds.count(label)
        assert recall == f"{hits / golds.count(label):.1%}"
        assert precision == f"{hits / guessed if guessed else 0:.1%}"


@pytest.mark.parametrize("kind", ["tag", "answer", "unanswerable"])
def test_the_report_of_tags_and_answers_marks_them_in_their_text(run, monkeypatch, kind):
    """Before the model has learned anything, so that there are mistakes."""
    monkeypatch.delitem(sys.modules, "bertsmith.report.finetuning")
    asked = " ".join(write_all_kinds(Path())[kind])
    code, _, err = run(f"finetune MODEL {asked} --dev {asked.split()[-1]} --output run --epochs 1 {SLOW}")
    assert code == 0, err
    html = Path("run/report.html").read_text(encoding="utf-8")
    page = Page(html)
    check_alone(Path("run"))
    said = read_json_lines(Path("run/predictions.jsonl"))
    if kind == "tag":
        wrong = [(words, each) for (words, tags), each in zip(tagged(), said, strict=True) if each["tags"] != tags]
        assert f"{len(wrong)} of 12 sentences have mistakes in them" in page.line
        missed = sum(html.count(f"[{words[0]} {words[1]} <small>PER, missed</small>]") for words, _ in wrong[:1])
        assert missed >= 1
    else:
        asked = [each["qas"][0] for each in questions(unanswerable=3 if kind == "unanswerable" else 0)]
        golds = [one["answers"][0]["text"] if one["answers"] else "" for one in asked]
        wrong = [(gold, each["answer"]) for gold, each in zip(golds, said, strict=True) if gold != each["answer"]]
        assert f"{len(wrong)} of 12 answers are not exactly right" in page.line
        marked = next(gold for gold, _ in wrong if gold)
        assert f'<mark class="gold">[{marked}]</mark>' in html
    if kind == "unanswerable":
        table = page.tables["gold \\ guess"]
        rows = {row[0]: [int(cell.split()[0]) for cell in row[1:]] for row in table[1:]}
        assert rows["none"][table[0].index("none") - 1] == sum(not gold and not each["answer"] for gold, each in
                                                               zip(golds, said, strict=True))  # fmt: skip
    assert wrong


KINDS = ["classify", "pairs", "multilabel", "regress", "choose", "tag", "answer", "unanswerable"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_has_a_page_of_its_own(run, monkeypatch, kind):
    """On the run's own dev file it shows what the run's report does; the scores are those that are printed."""
    monkeypatch.delitem(sys.modules, "bertsmith.report.finetuning")
    asked = " ".join(write_all_kinds(Path())[kind])
    file = asked.split()[-1]
    code, _, err = run(f"finetune MODEL {asked} --dev {file} --output run --epochs 1 {SLOW}")
    assert code == 0, err
    code, out, err = run(f"evaluate run --data {file} --report page.html --json")
    assert code == 0, err
    assert "report: page.html" in err
    scores = json.loads(out)
    whole, own = (Page(Path(name).read_text(encoding="utf-8")) for name in ("run/report.html", "page.html"))
    assert len(own.tables.pop("Scores")) == 1 + len(scores)
    assert f"{len(read_json_lines(Path('run/predictions.jsonl')))} examples of {file}" in own.line
    assert own.tables == {name: whole.tables[name] for name in own.tables}
    shown = own.line.split("Scores", 1)[1]
    begin = {"regress": "Gold and predicted", "multilabel": "Classes", "choose": "Choices", "tag": "Entities",
             "answer": "Most confident mistakes", "unanswerable": "Answered or not"}  # fmt: skip
    begin = begin.get(kind, "What is taken for what")
    assert shown[shown.index(begin) :] in whole.line
    assert own.images == whole.images[len(whole.images) - len(own.images) :]


def test_a_page_that_cannot_be_written_is_refused_before_any_work(run):
    write_reviews()
    code, _, err = run(f"{BEGIN} --epochs 1 {QUICK}")
    assert code == 0, err
    for name, what in [("none/a.html", "the folder none does not exist"), ("run", "is a folder; name a file"),
                       ("a.tsv", "is the input itself and would be replaced"),
                       ("/proc/a.html", "cannot be written there")]:  # fmt: skip
        code, out, err = run(f"evaluate run --data a.tsv --report {name}")
        assert (code, out) == (2, "")
        assert f"{name}: {what}" in err
