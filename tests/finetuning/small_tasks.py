"""Small models and files for tests of tasks and fine-tuning: each kind has something that a tiny model can learn."""

from __future__ import annotations

import json
import random
import string
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.config import BertConfig
from bertsmith.finetuning.keeping import Observer
from bertsmith.model.heads import build
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from torch import Tensor

NOUNS = ["river", "stone", "winter", "garden", "letter", "window", "paper", "horse"]
GOOD, BAD = ["good", "great", "fine"], ["bad", "poor", "awful"]
PEOPLE, PLACES = ["anna", "boris", "clara"], ["paris", "rome", "oslo"]
HAN = "我在北京上海大学工作小明住吃了苹果的人是谁哪里书今天很好坏红水"
LETTERS = [*string.ascii_lowercase, *string.digits]
PIECES = [
    *SPECIAL_TOKENS, *NOUNS, *GOOD, *BAD, *PEOPLE, *PLACES, "the", "was", "in", "is", "who", "where", "lives", "key",
    *LETTERS, *(f"##{letter}" for letter in LETTERS), *string.punctuation, "，", "。", "？", *dict.fromkeys(HAN),
]  # fmt: skip

# The shape of a model that takes a step in about two milliseconds, and can learn in some ten of them.
SHAPE = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)
QUICK = {"optimizer.rate": 5e-3, "batch.size": 4, "epochs": 2, "task.max_length": 32}


class Watcher(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, dict[str, float]]] = []

    def on_step(self, values, progress, total) -> None:
        self.steps.append(progress.step)
        self.losses.append(values["loss"])

    def on_evaluation(self, figures, step) -> None:
        self.evaluations.append((step, figures))

    def on_note(self, text) -> None:
        self.notes.append(text)


def make_tokenizer(**options: Any) -> Tokenizer:
    return Tokenizer.from_pieces(PIECES, **options)


def write_model(folder: Path, kind: str = "pretraining", seed: int = 3, **changes: Any) -> Path:
    """A model folder of the smallest kind."""
    config = SHAPE.derive(**changes)
    bundle = Bundle(build(config, kind, seed=seed), make_tokenizer(), config.max_position_embeddings)
    write_bundle(folder, bundle, source="a test")
    return folder


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_table(path: Path, header: Sequence[str] | None, rows: Iterable[Sequence[object]]) -> Path:
    """Cells apart by tabs."""
    return write_lines(path, ("\t".join(map(str, row)) for row in ([header] if header else []) + list(rows)))


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    return write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def reviews(count: int = 12, seed: int = 0) -> list[tuple[str, str]]:
    """Texts whose class is that of one word."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        words = BAD if number % 2 else GOOD
        made.append((f"the {rng.choice(NOUNS)} was {rng.choice(words)}", "neg" if number % 2 else "pos"))
    return made


def pairs(count: int = 12, seed: int = 0) -> list[tuple[str, str, str]]:
    """Two texts, and whether the second praises."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        words = BAD if number % 2 else GOOD
        found.append(
            (f"who is {rng.choice(PEOPLE)}", f"the {rng.choice(words)} {rng.choice(NOUNS)}", str(1 - number % 2))
        )
    return found


def several(count: int = 16, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts of up to two classes; every fourth has none."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        words, classes = [rng.choice(NOUNS)], []
        if number % 2:
            words.append(rng.choice(PEOPLE))
            classes.append("person")
        if number % 4 >= 2:
            words.append(rng.choice(PLACES))
            classes.append("place")
        made.append((" ".join(words), classes))
    return made


def degrees(count: int = 12, seed: int = 0) -> list[tuple[str, float]]:
    """Texts whose number is how much they praise."""
    rng = random.Random(seed)
    return [
        (" ".join([rng.choice(NOUNS), *["great"] * (n % 4), *["bad"] * (3 - n % 4)]), float(n % 4))
        for n in range(count)
    ]


def riddles(count: int = 12, seed: int = 0, choices: int = 3) -> list[dict[str, Any]]:
    """Choices of which one praises."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        texts = [f"the {rng.choice(BAD)} {rng.choice(NOUNS)}" for _ in range(choices)]
        texts[number % choices] = f"the {rng.choice(GOOD)} {rng.choice(NOUNS)}"
        made.append({"text": "where is the key", "choices": texts, "label": number % choices})
    return made


def tagged(count: int = 12, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    """Sentences with a person of two words and a place."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        words = [rng.choice(PEOPLE), rng.choice(PEOPLE), "lives", "in", rng.choice(PLACES), "."]
        made.append((words, ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]))
    return made


def write_conll(path: Path, sentences: Iterable[tuple[list[str], list[str]]], *, documents: int = 0) -> Path:
    """Words and tags; a document begins before every so many sentences."""
    lines = []
    for number, (words, tags) in enumerate(sentences):
        if documents and number % documents == 0:
            lines += ["-DOCSTART- O", ""]
        lines += [f"{word} {tag}" for word, tag in zip(words, tags, strict=True)]
        lines.append("")
    return write_lines(path, lines)


def questions(count: int = 12, seed: int = 0, *, unanswerable: int = 0) -> list[dict[str, Any]]:
    """Questions as SQuAD has them: the answer is the place; every so many have none."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        context = f"the {rng.choice(NOUNS)} was fine, {person} lives in {place}."
        none = bool(unanswerable) and number % unanswerable == 0
        if none:
            context = f"the {rng.choice(NOUNS)} was awful, {person} was bad."
        answers = [] if none else [{"text": place, "answer_start": context.index(place)}]
        asked = {"id": f"q{number}", "question": f"where is {person}", "answers": answers}
        if unanswerable:
            asked["is_impossible"] = none
        made.append({"context": context, "qas": [asked]})
    return made


def write_squad(path: Path, paragraphs: list[dict[str, Any]], indent: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": "v2.0", "data": [{"title": "A", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content, ensure_ascii=False, indent=indent), encoding="utf-8")
    return path


def write_all_kinds(folder: Path) -> dict[str, list[str]]:
    """A training file for every kind in `folder`, and the command line's options for each."""
    files = {
        "classify": write_table(folder / "reviews.tsv", ("text", "label"), reviews()),
        "pairs": write_table(folder / "pairs.tsv", ("text", "pair", "label"), pairs()),
        "multilabel": write_json_lines(folder / "several.jsonl", ({"text": t, "labels": c} for t, c in several())),
        "regress": write_table(folder / "degrees.tsv", ("text", "score"), degrees()),
        "choose": write_json_lines(folder / "riddles.jsonl", riddles()),
        "tag": write_conll(folder / "tagged.txt", tagged()),
        "answer": write_squad(folder / "questions.json", questions()),
        "unanswerable": write_squad(folder / "questions2.json", questions(unanswerable=3)),
    }
    kinds = {
        "pairs": ["classify"],
        "multilabel": ["classify", "--multilabel"],
        "unanswerable": ["answer", "--unanswerable"],
    }
    return {name: ["--task", *kinds.get(name, [name]), "--train", str(file)] for name, file in files.items()}


def weights_of(folder: Path) -> dict[str, Tensor]:
    """What a run published."""
    return load_file(folder / "model" / "model.safetensors")
