"""Chinese words against tokens: the first 2,000 documents of zh-web in ../shared/data.

Independently of the encoder, each sentence is tokenised by the engine with character offsets and segmented by itself.
Then every bound of the segmenter is looked for among the recorded unit starts. A bound that falls inside a piece, or
before a `##` piece, is no bound for BERT and must not be recorded; every other one must be.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import harness
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.text.sentences import SentenceSplitter
from bertsmith.text.words import ChineseWords, has_han
from bertsmith.vocab.corpus_encoder import CorpusEncoder

if TYPE_CHECKING:
    from bertsmith.vocab.tokenizer import Tokenizer

ZH_WEB = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus" / "zh-web.jsonl"


def compare(
    sentence: str, starts: np.ndarray, tokens: np.ndarray, tokenizer: Tokenizer, words: list[str]
) -> Counter[str]:
    """What became of each bound of one sentence."""
    encoding = tokenizer._plain_engine.encode(sentence, add_special_tokens=False)
    found: Counter[str] = Counter(sentences=1, tokens=len(tokens))
    if encoding.ids != tokens.tolist():
        found["sentences whose tokens differ from the engine's"] += 1
        return found
    bounds = set(accumulate((len(word) for word in words), initial=0))
    continues = [tokenizer.piece(number).startswith("##") for number in encoding.ids]
    begins = {start: number for number, (start, _) in reversed(list(enumerate(encoding.offsets)))}
    inside = {place for start, end in encoding.offsets for place in range(start + 1, end)}
    for bound in bounds:
        if bound in begins and not continues[begins[bound]]:
            found["bounds before a piece"] += 1
            found["bounds lost"] += not starts[begins[bound]]
        elif bound in begins:
            found["bounds before a ## piece, inside a word of BERT's"] += 1
            found["bounds recorded inside a word"] += bool(starts[begins[bound]])
        elif bound in inside:
            found["bounds inside a piece"] += 1
    for number, start in enumerate(starts):
        found["units"] += bool(start)
        found["units that begin where no word does"] += bool(start) and encoding.offsets[number][0] not in bounds
    return found


def main() -> int:
    """Count, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--documents", type=int, default=2000)
    options = arguments.parse_args()
    tokenizer = open_tokenizer("m3e-small")
    segmenter, splitter = ChineseWords(), SentenceSplitter()
    encoder = CorpusEncoder(tokenizer, segmenter=segmenter)
    found: Counter[str] = Counter()
    with ZH_WEB.open(encoding="utf-8") as file:
        for _, line in zip(range(options.documents), file, strict=False):
            found["documents"] += 1
            sentences = [sentence for sentence in splitter.split(json.loads(line)["text"]) if has_han(sentence)]
            encoded = encoder.encode(sentences)
            ends = np.cumsum(encoded.lengths)
            for sentence, start, end in zip(sentences, ends - encoded.lengths, ends, strict=True):
                found += compare(
                    sentence,
                    encoded.starts[start:end],
                    encoded.tokens[start:end],
                    tokenizer,
                    segmenter.cut(sentence),
                )
    wrong = (
        "sentences whose tokens differ from the engine's",
        "bounds lost",
        "bounds recorded inside a word",
        "units that begin where no word does",
    )
    harness.show(
        "chinese-words",
        "Chinese words and tokens",
        [
            (__doc__ or "").strip(),
            "",
            harness.no_products(),
            "",
            "| what | number |",
            "|---|---|",
            *(f"| {name} | {count:,} |" for name, count in found.items() if name not in wrong),
            "",
            *harness.verdict_table([(name, "0", f"{found[name]:,}", not found[name]) for name in wrong]),
            "",
            harness.versions("rjieba", "sentencex"),
        ],
        keep=options.keep,
    )
    return 1 if any(found[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
