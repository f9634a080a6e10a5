"""Text to WordPiece ids and back, over the Rust engine of `tokenizers`.

Comes in: a model folder (`tokenizer.json`, or `vocab.txt` with an optional `tokenizer_config.json`), or
a list of pieces. Goes out: `Encoding`s, the engine's own objects, with `ids`, `type_ids`, `tokens` and
`offsets` into the original text, as `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

Truncation and padding stored in a `tokenizer.json` belong to whoever wrote it and are ignored: the
caller says how long a sequence may be, and nothing is ever padded.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from bertsmith.config import read_json
from bertsmith.errors import InputError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["SPECIAL_TOKENS", "Encoding", "Tokenizer"]

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROLES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))


class Tokenizer:
    """A BERT tokenizer. Safe to share between threads: encoding never changes it.

    >>> tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, "un", "##want", "##ed", "run"])
    >>> tokenizer.encode("Unwanted run").tokens
    ['[CLS]', 'un', '##want', '##ed', 'run', '[SEP]']
    """

    def __init__(self, engine: Engine, special_tokens: dict[str, str] | None = None) -> None:
        names = {**_ROLES, **(special_tokens or {})}
        engine.no_padding()
        engine.no_truncation()
        missing = [name for name in names.values() if engine.token_to_id(name) is None]
        if missing:
            raise TokenizerError(f"the vocabulary lacks {', '.join(missing)}, which BERT cannot do without")
        _complete(engine, names)
        self._names = names
        self._text = engine.to_str()
        self._engine = lru_cache(maxsize=8)(self._make_engine)
        # Not the number of pieces: a piece that a vocabulary lists twice leaves a hole in the numbering.
        self.vocab_size: int = max(engine.get_vocab(with_added_tokens=True).values()) + 1

    @classmethod
    def from_pieces(
        cls,
        pieces: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
        special_tokens: dict[str, str] | None = None,
    ) -> Tokenizer:
        """Build the BERT pipeline over a vocabulary in id order.

        `strip_accents=None` strips them when lowercasing, as the original does.
        """
        names = {**_ROLES, **(special_tokens or {})}
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        engine = Engine(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
        engine.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
        )
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix="##")
        return cls(engine, special_tokens)

    @classmethod
    def from_folder(cls, folder: Path, *, lowercase: bool | None = None) -> Tokenizer:
        """Read `tokenizer.json`, or else `vocab.txt`, with what `tokenizer_config.json` says.

        `lowercase` counts where neither file says it; where nobody does, the folder and its vocabulary decide.
        """
        settings_file = folder / "tokenizer_config.json"
        settings = read_json(settings_file) if settings_file.is_file() else {}
        try:
            special_tokens = _special_tokens(settings)
            if (folder / "tokenizer.json").is_file():
                return cls(_read_engine(folder / "tokenizer.json"), special_tokens)
            return cls.from_pieces(
                _read_pieces(folder / "vocab.txt"),
                lowercase=_flag(
                    settings, "do_lower_case", default=_is_uncased(folder) if lowercase is None else lowercase
                ),
                strip_accents=_flag(settings, "strip_accents", default=None),
                split_chinese=_flag(settings, "tokenize_chinese_chars", default=True),
                special_tokens=special_tokens,
            )
        except TokenizerError as error:
            raise TokenizerError(f"{folder}: {error}") from error

    def encode(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> Encoding:
        """Encode one text, or a pair of texts, cut from the longer side until it fits `max_length`."""
        return self.encode_batch([text], None if pair is None else [pair], max_length=max_length)[0]

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, max_length: int | None = None
    ) -> list[Encoding]:
        """Encode many texts (or pairs of texts) at once, on all cores."""
        return self._encode(texts, pairs, max_length, offsets=True)

    def encode_ids(self, texts: Sequence[str], *, max_length: int | None = None) -> list[list[int]]:
        """The ids of many texts and nothing else: as `encode_batch`, without the time that offsets take."""
        return [row.ids for row in self._encode(texts, None, max_length, offsets=False)]

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Corpus text to ids: no `[CLS]` and `[SEP]` around it, and a special token's name in it is plain text."""
        rows = self._plain_engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return [row.ids for row in rows]

    def decode(self, ids: Sequence[int]) -> str:
        """Join pieces into text; special tokens are left out."""
        text: str = self._engine(None, False).decode(list(ids), skip_special_tokens=True)
        return text

    def piece(self, number: int) -> str:
        """The piece behind an id."""
        known = 0 <= number < self.vocab_size
        piece: str | None = self._engine(None, False).id_to_token(number) if known else None
        if known and piece is None:  # a hole, as a vocabulary that lists a piece twice has
            return f"[unused{number}]"
        if piece is None:
            raise TokenizerError(f"id {number} is outside the vocabulary of {self.vocab_size} pieces")
        return piece

    def id_of(self, piece: str) -> int | None:
        """The id of a piece, or None where the vocabulary has no such piece."""
        number: int | None = self._engine(None, False).token_to_id(piece)
        return number

    @property
    def pieces(self) -> list[str]:
        """The whole vocabulary; a hole in the numbering is filled with `[unusedN]`."""
        vocabulary = self._engine(None, False).get_vocab(with_added_tokens=True)
        by_number = {number: piece for piece, number in vocabulary.items()}
        return [by_number.get(number, f"[unused{number}]") for number in range(max(by_number) + 1)]

    @property
    def lowercase(self) -> bool:
        """Whether text is lowercased first (an "uncased" model)."""
        return _lowercases(json.loads(self._text).get("normalizer"))

    @property
    def splits_at_spaces(self) -> bool:
        """Whether these are BERT's own rules, under which no piece, and no rule, reaches across white space."""
        description = json.loads(self._text)
        kinds = [(description.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer")]
        plain = all(token["special"] for token in description.get("added_tokens", []))
        return plain and kinds == ["BertNormalizer", "BertPreTokenizer"]

    @property
    def isolates_han(self) -> bool:
        """Whether every Chinese character is a word of its own."""
        return bool((json.loads(self._text).get("normalizer") or {}).get("handle_chinese_chars"))

    @cached_property
    def _plain_engine(self) -> Engine:
        engine = Engine.from_str(self._text)
        engine.encode_special_tokens = True
        return engine

    @property
    def cls_id(self) -> int:
        """The id of `[CLS]`."""
        return self._special_id("cls_token")

    @property
    def sep_id(self) -> int:
        """The id of `[SEP]`."""
        return self._special_id("sep_token")

    @property
    def mask_id(self) -> int:
        """The id of `[MASK]`."""
        return self._special_id("mask_token")

    @property
    def mask_token(self) -> str:
        """How a gap is written in text, `[MASK]` nearly always."""
        return self._names["mask_token"]

    @property
    def unk_id(self) -> int:
        """The id of `[UNK]`."""
        return self._special_id("unk_token")

    @property
    def pad_id(self) -> int:
        """The id of `[PAD]`, which Bertsmith itself never writes into a batch."""
        return self._special_id("pad_token")

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that decides how text is encoded."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    def save(self, folder: Path, *, max_length: int) -> None:
        """Write `tokenizer.json`, `vocab.txt` and `tokenizer_config.json` into a folder."""
        normalizer = json.loads(self._text).get("normalizer") or {}
        settings = {
            **self._names,
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
            "model_max_length": max_length,
        }
        (folder / "tokenizer.json").write_text(self._text, encoding="utf-8")
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in self.pieces), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def __getstate__(self) -> tuple[str, dict[str, str]]:
        return self._text, self._names

    def __setstate__(self, state: tuple[str, dict[str, str]]) -> None:
        self.__init__(Engine.from_str(state[0]), state[1])  # type: ignore[misc]

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int | None, *, offsets: bool
    ) -> list[Encoding]:
        if isinstance(texts, str) or isinstance(pairs, str):
            raise InputError("expected a list of texts, not one text")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts cannot be paired with {len(pairs)}")
        if not all(isinstance(text, str) for text in (*texts, *(pairs or ()))):  # a tuple passes as a pair
            raise TokenizerError(_why_unreadable([*texts, *(pairs or [])]))
        engine = self._engine(max_length, pairs is not None)
        rows: Iterable[str | tuple[str, str]] = texts if pairs is None else zip(texts, pairs, strict=True)
        try:
            if pairs is not None and max_length is not None:
                rows = [self._shorten(text, pair, max_length) for text, pair in zip(texts, pairs, strict=True)]
            elif max_length is not None:
                rows = self._heads(texts, max_length)
            encode = engine.encode_batch if offsets else engine.encode_batch_fast
            encodings: list[Encoding] = encode(list(rows))
        except (TypeError, UnicodeEncodeError) as error:
            raise TokenizerError(_why_unreadable([*texts, *(pairs or [])])) from error
        return encodings

    def _special_id(self, role: str) -> int:
        number = self.id_of(self._names[role])
        assert number is not None, "the constructor checked it"
        return number

    def _heads(self, texts: Sequence[str], number: int) -> list[str]:
        """As much of each long text as decides its first tokens, `number` of them; other texts as they are."""
        heads, size = list(texts), 8 * number + 1024
        while (long := [row for row, head in enumerate(heads) if len(head) > 4 * size]) and self._reach is not None:
            shorter = [heads[row][:size] for row in long]
            encodings = self._engine(None, False).encode_batch_fast(shorter, add_special_tokens=False)
            for row, head, encoding in zip(long, shorter, encodings, strict=True):
                if len(encoding) >= number + self._reach:
                    heads[row].encode()  # half a surrogate pair is an error where nobody reads it, too
                    heads[row] = head
            size *= 4
        return heads

    @cached_property
    def _reach(self) -> int | None:
        """How many tokens at the end of a text may be others if it goes on; None under rules that are not BERT's.

        Only the last word's and those of an added token that is cut in two: a word has no more tokens than characters,
        and one beyond the limit is `[UNK]`.
        """
        if not self.splits_at_spaces:
            return None
        description = json.loads(self._text)
        longest = max(len(token["content"]) for token in description["added_tokens"])
        return int(description["model"]["max_input_chars_per_word"]) + longest

    def _shorten(self, text: str, pair: str, max_length: int) -> tuple[str, str]:
        """Cut long texts, between words, to what truncation can keep of them; the longer stays the longer.

        The engine keeps each overflow of one text with each overflow of the other: without this cut, a pair
        of 50,000 tokens each takes more than 12 GB on its way to 512.
        """
        if max(len(text), len(pair)) <= 8 * max_length:
            return text, pair
        encode = partial(self._engine(None, False).encode, add_special_tokens=False)
        if len(text) > len(pair):
            second = encode(pair)
            (text,) = self._heads([text], max(len(second), max_length) + 1)
            first = encode(text)
        else:
            first = encode(text)
            (pair,) = self._heads([pair], max(len(first), max_length) + 1)
            second = encode(pair)
        if len(first) > len(second):
            end = _next_word(second, max_length)
            return _cut(text, first, _next_word(first, max(end + 1, max_length))), _cut(pair, second, end)
        end = _next_word(first, max_length)
        return _cut(text, first, end), _cut(pair, second, _next_word(second, max(end, max_length)))

    def _make_engine(self, max_length: int | None, paired: bool) -> Engine:
        """An engine of its own for each length, because the engine keeps its length as state."""
        engine = Engine.from_str(self._text)
        if max_length is not None:
            num_special = engine.num_special_tokens_to_add(is_pair=paired)
            if max_length <= num_special:
                raise InputError(f"max_length {max_length} leaves no room beside {num_special} special tokens")
            engine.enable_truncation(max_length, strategy="longest_first")
        return engine


def _read_engine(path: Path) -> Engine:
    try:
        engine = Engine.from_file(str(path))
    except Exception as error:  # the engine raises plain Exception for every kind of bad file
        raise TokenizerError(f"{path.name} cannot be read ({error})") from error
    if not isinstance(engine.model, models.WordPiece):
        kind = type(engine.model).__name__
        raise TokenizerError(f"{path.name} holds a {kind} tokenizer; a BERT has WordPiece")
    if engine.model.token_to_id(engine.model.unk_token) is None:
        unknown = engine.model.unk_token
        raise TokenizerError(f"{path.name}: the vocabulary lacks its own unknown token {unknown}")
    return engine


def _complete(engine: Engine, names: dict[str, str]) -> None:
    """Give a bare engine what makes it BERT's: special tokens that are found in text, and `[CLS] A [SEP]`."""
    registered = {token.content for token in engine.get_added_tokens_decoder().values()}
    engine.add_special_tokens([name for name in names.values() if name not in registered])
    if engine.post_processor is None:
        first, last = names["cls_token"], names["sep_token"]
        engine.post_processor = processors.TemplateProcessing(
            single=f"{first}:0 $A:0 {last}:0",
            pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
            special_tokens=[(name, engine.token_to_id(name)) for name in (first, last)],
        )


def _next_word(encoding: Encoding, number: int) -> int:
    """The first token from `number` on that begins a word, or the number of tokens."""
    words = encoding.word_ids
    later = range(number, len(words))
    return next((index for index in later if words[index] != words[index - 1]), len(words))


def _cut(text: str, encoding: Encoding, number: int) -> str:
    """The text before a token, all of it where there is no such token."""
    return text[: encoding.offsets[number][0]] if number < len(encoding) else text


def _is_uncased(folder: Path) -> bool:
    """Google's folders do not say whether they are cased; a vocabulary with words in capitals can only be.

    (Its Chinese vocabulary, which is not cased, has the pieces `<S>` and `<T>`.) Folders as Hugging Face has them are
    not cased unless they say so.
    """
    if any((folder / name).is_file() for name in ("config.json", "tokenizer_config.json")):
        return True
    pieces = _read_pieces(folder / "vocab.txt")
    return not any(piece.removeprefix("##").isalnum() and piece != piece.lower() for piece in pieces)


def _read_pieces(path: Path) -> list[str]:
    """One piece a line, without white space at its end, as the engine itself reads such a file."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise TokenizerError("neither tokenizer.json nor vocab.txt is there") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path.name} cannot be read as UTF-8 text ({error})") from error
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip() for line in lines]


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens' names; older files hold an object with the name in `content`."""
    names = {}
    for role in _ROLES:
        value = settings.get(role)
        value = value.get("content") if isinstance(value, dict) else value
        if value is None:
            continue
        if not isinstance(value, str) or not value:
            raise TokenizerError(f"tokenizer_config.json: {role} must be a text, not {value!r:.60}")
        names[role] = value
    return names


def _flag(settings: dict[str, Any], key: str, *, default: bool | None) -> Any:
    value = settings.get(key, default)
    if value is not None and not isinstance(value, bool):
        raise TokenizerError(f"tokenizer_config.json: {key} must be true or false, not {value!r:.60}")
    return default if value is None else value


def _lowercases(normalizer: dict[str, Any] | None) -> bool:
    """Look for lowercasing in a normalizer as `tokenizer.json` describes it."""
    if not normalizer:
        return False
    if normalizer.get("type") == "Sequence":
        return any(_lowercases(part) for part in normalizer.get("normalizers", []))
    return normalizer.get("type") == "Lowercase" or bool(normalizer.get("lowercase"))


def _why_unreadable(texts: Sequence[Any]) -> str:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return f"text {number} is {type(text).__name__}, not str"
        for place, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                return (
                    f"text {number} has half a surrogate pair ({character!r}) at character {place}: "
                    "decode the input as UTF-8 with errors='replace'"
                )
    return "the tokenizer cannot read this input"
