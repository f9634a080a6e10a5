"""`embed`, `tokens` and `attention` of the engine against `transformers`: pools, layers, pairs, whitening, pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.errors import ConfigError, InputError
from bertsmith.infer.engine import Engine, load
from bertsmith.jobs.predict import open_task
from bertsmith.model.pooling import Pooling, Whitening
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS
from finetuning.small_tasks import NOUNS, SHAPE, make_tokenizer
from infer.task_models import write_task
from twins import random_model, their_twin

DEEP = SHAPE.derive(num_hidden_layers=4)
TEXTS = ["the river was good", "", "Anna lives in Paris.", "stone " * 90, "x9z, 北京", "the river was good"]
PAIRS = [
    ("who is anna", "the good river"),
    ("", "paper"),
    ("winter " * 80, "the horse"),
    ("key", "window " * 70),
    ("letter " * 50, "garden " * 50),
    ("a", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder that both libraries open."""
    folder = tmp_path_factory.mktemp("models") / "model"
    write_bundle(folder, Bundle(random_model("encoder", DEEP), make_tokenizer(), 64), source="a test")
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return load(str(folder))


@pytest.fixture(scope="module")
def theirs(folder):
    """A text, or a pair, to its pieces and to the states of every layer, as `transformers` has them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = their_twin(random_model("encoder", DEEP))

    def run(text, pair=None, **more):
        given = [text if pair is None else (text, pair)]
        encoded = tokenizer(given, truncation="longest_first", max_length=64, return_tensors="pt")
        with torch.no_grad():
            found = model(**encoded, output_hidden_states=True, **more)
        return tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]), [s[0] for s in found.hidden_states], found

    return run


def pooled(states, pool, layers=(-1,)):
    rows = torch.stack([states[layer] for layer in layers]).mean(0)
    return {
        "mean": lambda: rows.mean(0),
        "cls": lambda: rows[0],
        "max": lambda: rows.max(0).values,
        "last4": lambda: torch.cat([state.mean(0) for state in states[-4:]]),
        "first-last": lambda: ((states[1] + states[-1]) / 2).mean(0),
    }[pool]().numpy()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("pool", "layers"),
    [("mean", None), ("cls", None), ("max", None), ("last4", None), ("first-last", None), ("mean", (-2, -1)),
     ("cls", (0,)), ("max", (1, 2, 3))],
)  # fmt: skip
def test_vectors_of_texts_and_pairs_are_those_of_transformers(ours, theirs, pool, layers, normalize):
    """Both in one call, each as it would be alone."""
    mixed = [one for both in zip(TEXTS, PAIRS, strict=True) for one in both]
    vectors = ours.embed(mixed, pool=pool, layers=layers, normalize=normalize)
    for given, vector in zip(mixed, vectors, strict=True):
        _, states, _ = theirs(*((given,) if isinstance(given, str) else given))
        expected = pooled(states, pool, layers or (-1,))
        expected = expected / np.linalg.norm(expected) if normalize else expected
        np.testing.assert_allclose(vector, expected, atol=2e-5)


def test_a_pair_has_two_segments(ours):
    together, joined = ours.embed([("the river", "the stone"), "the river [SEP] the stone"])
    assert np.abs(together - joined).max() > 0.01


def test_pieces_instead_of_text_with_or_without_special_tokens(ours):
    ids = ours.tokenizer.encode(TEXTS[2]).ids
    found = ours.embed([TEXTS[2], ids, ids[1:-1], [], [ids[1]] * 100])
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)
    np.testing.assert_allclose(found[3], ours.embed([""])[0], atol=1e-5)
    assert np.isfinite(found).all()
    for wrong in ([-1], [10**6], ["a"], [1.5]):
        with pytest.raises(InputError, match="whole numbers from 0 to"):
            ours.embed([wrong])


@pytest.mark.parametrize("layers", [(-1,), (4,), (0,), (0, 1, 2, 3, 4), (-1, 1)])
def test_rows_of_tokens_are_the_hidden_states_beside_their_pieces(ours, theirs, layers):
    given = [*TEXTS, *PAIRS]
    found = list(ours.tokens(iter(given), layers=layers))
    assert len(found) == len(given)
    for one, (pieces, rows) in zip(given, found, strict=True):
        expected_pieces, states, _ = theirs(*((one,) if isinstance(one, str) else one))
        assert pieces == expected_pieces
        assert rows.dtype == np.float32
        assert rows.shape == (len(pieces), len(layers), DEEP.hidden_size)
        for place, layer in enumerate(layers):
            np.testing.assert_allclose(rows[:, place], states[layer].numpy(), atol=2e-5)


def test_max_length_cuts_tokens_and_vectors_alike(ours):
    ((pieces, rows),) = ours.tokens(["the river was good"], max_length=4)
    assert pieces == ["[CLS]", "the", "river", "[SEP]"]
    np.testing.assert_allclose(rows[:, 0].mean(0), ours.embed(["the river was good"], max_length=4)[0], atol=1e-5)


@pytest.mark.parametrize("given", [("the river was good",), ("who is anna", "the good river")])
def test_attention_is_that_of_transformers(ours, theirs, given):
    found = ours.attention(*given)
    pieces, _, output = theirs(*given, output_attentions=True)
    assert found.encoding.tokens == pieces
    expected = torch.stack(output.attentions)[:, 0].numpy()
    np.testing.assert_allclose(found.maps, expected, atol=1e-5)


def test_wrong_layers_pools_and_inputs_are_named(ours):
    for layers in ((5,), (-6,), (0, 99)):
        for ask in (ours.embed, ours.tokens):
            with pytest.raises(InputError, match="this model has layers 0 to 4"):
                ask(["a"], layers=layers)
    with pytest.raises(ConfigError, match="last4 has its own"):
        ours.embed(["a"], pool="last4", layers=(1,))
    with pytest.raises(ConfigError, match="name some"):
        ours.tokens(["a"], layers=())
    with pytest.raises(ConfigError, match="pool"):
        ours.embed(["a"], pool="sum")
    for ask in (ours.embed, ours.tokens, ours.fill_many, ours.classify):
        with pytest.raises(InputError, match=r"list of texts|no masked-word head|does no task"):
            ask("one text")
    with pytest.raises(InputError, match="list of texts"):
        ours.tokens("one text")
    for wrong in (("a", "b", "c"), ("a",), ()):
        with pytest.raises(InputError, match=f"a pair is of two texts, not {len(wrong)}"):
            ours.embed([("a", "b"), wrong])


def sample(count=60):
    """Texts that differ."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice([*NOUNS, "the", "was", "x", "北"], rng.integers(1, 12))) for _ in range(count)]


def whitened(pool="mean", layers=None, width=None, normalize=False):
    """An engine, its plain vectors of `sample()`, and the same engine with a whitening fitted on those."""
    plain = Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64))
    vectors = plain.embed(sample(), pool=pool, layers=layers)
    whitening = Whitening.fit(torch.from_numpy(vectors), width)
    pooling = Pooling(pool=pool, layers=layers, normalize=normalize)
    bundle = Bundle(random_model("encoder", DEEP), make_tokenizer(), 64, pooling=pooling, whitening=whitening)
    return vectors, Engine(bundle, name="its folder")


@pytest.mark.parametrize(("pool", "layers", "width"), [("mean", None, None), ("cls", (1, 2), 5), ("last4", None, 30)])
def test_the_whitening_of_a_folder_is_used_unless_it_is_declined(pool, layers, width):
    vectors, engine = whitened(pool, layers, width)
    white = engine.embed(sample())
    assert white.shape == (60, engine.embedder().width)
    assert width is None or white.shape[1] == width
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(white, rowvar=False), np.eye(white.shape[1]), atol=1e-2)
    np.testing.assert_allclose(engine.embed(sample(), whiten=True, pool=pool, layers=layers), white, atol=1e-5)
    np.testing.assert_allclose(engine.embed(sample(), whiten=False), vectors, atol=1e-5)
    assert engine.embed([]).shape == (0, white.shape[1])
    scaled = engine.embed(sample(), normalize=True)
    np.testing.assert_allclose(scaled, white / np.linalg.norm(white, axis=1, keepdims=True), atol=1e-4)


def test_a_whitening_is_for_one_pooling_alone():
    _, engine = whitened("mean", (1, 2))
    for changes in ({"pool": "cls"}, {"pool": "mean"}, {"layers": (2, 1, 1)}, {"pool": "last4"}):
        with pytest.raises(InputError, match="its folder: its whitening is for pool mean; leave pool and layers out"):
            engine.embed(["a"], **changes)
        assert engine.embed(["a"], whiten=False, **changes).shape[0] == 1
    _, engine = whitened("cls", (4,))
    engine.embed(["a"], pool="cls")  # the last layer, by whatever name
    with pytest.raises(InputError, match="has no whitening; see bertsmith whiten"):
        Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64)).embed(["a"], whiten=True)


def test_the_folder_says_how_vectors_are_made_and_the_caller_may_say_otherwise():
    pooling = Pooling(pool="cls", layers=(1,), normalize=True)
    engine = Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64, pooling=pooling))
    plain = Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64))

    def same(one, other):
        np.testing.assert_allclose(one, other, atol=1e-5)

    same(engine.embed(TEXTS), plain.embed(TEXTS, pool="cls", layers=(1,), normalize=True))
    same(engine.embed(TEXTS, normalize=False), plain.embed(TEXTS, pool="cls", layers=(1,)))
    same(engine.embed(TEXTS, layers=(2,)), plain.embed(TEXTS, pool="cls", layers=(2,), normalize=True))
    same(engine.embed(TEXTS, pool="max"), plain.embed(TEXTS, pool="max", normalize=True))


def test_a_whitening_or_layers_that_the_model_cannot_have_are_refused():
    unfit = Whitening(torch.zeros(5), torch.ones(5, 2))
    with pytest.raises(InputError, match="the whitening is of vectors of 5 numbers, the model's have 16"):
        Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64, whitening=unfit)).embed(["a"])
    deeper = Pooling(layers=(7,))
    with pytest.raises(InputError, match="layers 7: this model has layers 0 to 4"):
        Engine(Bundle(random_model("encoder", DEEP), make_tokenizer(), 64, pooling=deeper)).embed(["a"])


def test_the_whitening_goes_to_the_device_of_the_model():
    whitening = Whitening(torch.zeros(16), torch.ones(16, 2))
    bundle = Bundle(random_model("encoder", DEEP), make_tokenizer(), 64, whitening=whitening)
    assert Engine(bundle, device="meta").embedder().whitening.kernel.device.type == "meta"


def test_eight_bits_are_asked_for_by_name(folder, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("bertsmith.model.eight_bit.quantize", asked.append)
    load(str(folder))
    assert asked == []
    engine = load(str(folder), int8=True)
    assert asked == [engine.model]
    assert open_task(str(write_task(tmp_path / "m", "classify")), int8=True).model is asked[1]


def test_neighbours_are_the_nearest_rows_of_the_table(ours):
    """By hand: cosines with every row; the word's own pieces and those that stand for no text are left out."""
    table = ours.model.encoder.embeddings.word.weight.detach().double().numpy()
    pieces = ours.tokenizer.pieces
    for word in ("river", "xyz", "Anna"):
        ids = ours.tokenizer.encode_plain([word])[0]
        vector = table[ids].mean(0)
        cosines = table @ vector / np.linalg.norm(table, axis=1) / np.linalg.norm(vector)
        wanted = [n for n in np.argsort(-cosines) if n not in ids and pieces[n] not in SPECIAL_TOKENS]
        (found,) = ours.neighbours([word], top=7)
        assert [one.token for one in found] == [pieces[n] for n in wanted[:7]]
        np.testing.assert_allclose([one.score for one in found], cosines[wanted[:7]], atol=1e-5)
    several = ours.neighbours(["river", "xyz", "Anna"], top=7)
    assert [one.token for one in several[2]] == [one.token for one in found]
    (everything,) = ours.neighbours(["river"], top=10_000)
    assert len(everything) == len(pieces) - len(SPECIAL_TOKENS) - 1


@pytest.mark.parametrize(
    ("words", "top", "said"),
    [([""], 3, "'' is not a word"), (["\u0f04"], 3, "not a word that the model knows"), (["a"], 0, "top must be 1"),
     (["x " * 33], 3, "is not a word"), ("river", 3, "expected a list")],
)  # fmt: skip
def test_what_has_no_neighbours_is_said(ours, words, top, said):
    with pytest.raises(InputError, match=said):
        ours.neighbours(words, top=top)
