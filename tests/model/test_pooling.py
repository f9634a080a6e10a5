"""Pooling and whitening against plain computations: hidden states of `transformers`, and eigenvalues by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.errors import ConfigError, InputError
from bertsmith.model.pooling import Pooling, Whitening
from bertsmith.settings import validated
from twins import TINY, mixed_batch, padded, random_model, their_twin, unpadded

DEEP = TINY.derive(num_hidden_layers=5)
LAYERS = [None, (0,), (-1,), (5,), (-6, 5), (1, 3), (-2, -1), (2, 2, 5)]


@pytest.fixture(scope="module")
def twins():
    """A model of ours, a batch of mixed lengths, and what `transformers` has in every layer, by sequence."""
    model, batch = random_model("encoder", DEEP), mixed_batch(DEEP)
    with torch.no_grad():
        found = their_twin(model)(**padded(batch), output_hidden_states=True).hidden_states
    sizes = batch.lengths.tolist()
    return model, batch, [unpadded(state, batch).split(sizes) for state in found]


def by_hand(states, pool, layers):
    """One vector a sequence, one sequence at a time."""
    vectors = []
    for number in range(len(states[0])):
        if pool == "last4":
            vectors.append(torch.cat([states[layer][number].mean(0) for layer in (2, 3, 4, 5)]))
            continue
        if pool == "first-last":
            rows = (states[1][number] + states[5][number]) / 2
        else:
            rows = sum(states[layer][number] for layer in layers or (-1,)) / len(layers or (-1,))
        over = {"cls": lambda rows: rows[0], "max": lambda rows: rows.max(0).values}.get(pool, lambda r: r.mean(0))
        vectors.append(over(rows))
    return torch.stack(vectors)


@pytest.mark.parametrize(
    ("pool", "layers"),
    [*((pool, layers) for pool in ("mean", "cls", "max") for layers in LAYERS), ("last4", None), ("first-last", None)],
)
def test_every_pooling_is_that_of_the_hidden_states(twins, pool, layers):
    model, batch, states = twins
    pooling = Pooling(pool=pool, layers=layers)
    with torch.no_grad():
        vectors = pooling.vectors(model.encoder, batch.input_ids, batch.token_type_ids, batch.lengths)
    assert vectors.shape == (len(batch.lengths), pooling.width(DEEP.hidden_size))
    torch.testing.assert_close(vectors, by_hand(states, pool, layers), rtol=1e-4, atol=2e-5)


def test_poolings_differ(twins):
    """Or the test above could not tell one from another."""
    _, _, states = twins
    found = [by_hand(states, pool, layers) for pool in ("mean", "cls", "max") for layers in (None, (0,), (1, 3))]
    found.append(by_hand(states, "first-last", None))
    for one in range(len(found)):
        for other in range(one):
            assert (found[one] - found[other]).abs().max() > 0.1


def test_layers_are_counted_from_the_embeddings_or_from_the_end():
    assert Pooling(layers=(0, 2, -1)).numbers(3) == [0, 2, 3]
    assert Pooling(pool="first-last").numbers(3) == [1, 3]
    assert Pooling(pool="last4").numbers(4) == [1, 2, 3, 4]
    for last in (None, (-1,), (3,)):  # the last layer alone, which needs no others to be kept
        assert Pooling(pool="cls", layers=last).numbers(3) is None
        assert Pooling(layers=last).reads_as(Pooling(normalize=True), 3)
    assert not Pooling(layers=(2,)).reads_as(Pooling(), 3)
    assert not Pooling(pool="cls").reads_as(Pooling(), 3)


@pytest.mark.parametrize("layers", [(4,), (-5,), (0, 9)])
def test_layers_out_of_range_are_named(layers):
    with pytest.raises(InputError, match=rf"layers {layers[0]}.*: this model has layers 0 to 3"):
        Pooling(layers=layers).numbers(3)


@pytest.mark.parametrize("there", [2, 3])
def test_four_layers_of_fewer_are_refused(there):
    """The embeddings are no layer."""
    with pytest.raises(InputError, match=f"pool last4 needs more layers than the {there} of this model"):
        Pooling(pool="last4").numbers(there)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"layers": ()}, "name some"),
        ({"pool": "last4", "layers": (1,)}, "last4 has its own"),
        ({"pool": "first-last", "layers": (1,)}, "first-last has its own"),
        ({"pool": "sum"}, "pool"),
        ({"layers": ("one",)}, "layers"),
        ({"layers": 1}, "layers"),
        ({"normalise": True}, "normalise"),
    ],
)
def test_a_pooling_that_cannot_be_is_one_sentence(content, said):
    with pytest.raises(ConfigError, match=said) as caught:
        validated(Pooling, content)
    assert "\n" not in str(caught.value)


def sample(count=400, width=12, seed=0):
    """Vectors whose numbers depend on each other, far from zero, some directions a thousand times as wide as others."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(count, width, generator=generator) * torch.logspace(0, -3, width)
    return plain @ torch.linalg.qr(torch.randn(width, width, generator=generator)).Q + 3


def spread(vectors):
    """Mean and covariance."""
    vectors = vectors.double()
    return vectors.mean(0).numpy(), np.cov(vectors.numpy(), rowvar=False)


def test_a_sample_in_parts_gives_the_same_whitening():
    vectors = sample(400)
    whole, parts = Whitening.fit(vectors), Whitening.fit(iter(vectors.split(7)))
    torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(parts(vectors).abs(), whole(vectors).abs(), rtol=1e-3, atol=1e-3)  # signs are free


@pytest.mark.parametrize(("count", "width"), [(400, None), (400, 5), (400, 2), (9, None), (2, None)])
def test_whitened_vectors_have_mean_0_and_the_identity_as_covariance(count, width):
    """Over their own sample; one of few vectors varies in as many directions as there are vectors, less one."""
    vectors = sample(count)
    whitening = Whitening.fit(vectors, width)
    white = whitening(vectors)
    kept = min(width or 12, count - 1)
    assert white.shape == (count, kept)
    assert white.dtype == torch.float32
    mean, covariance = spread(white)
    np.testing.assert_allclose(mean, 0, atol=2e-3)
    np.testing.assert_allclose(np.atleast_2d(covariance), np.eye(kept), atol=5e-3)


def test_the_dimensions_that_stay_are_those_of_the_largest_variance_widest_first():
    vectors = sample()
    variances, directions = np.linalg.eigh(np.cov(vectors.double().numpy(), rowvar=False))
    centred = vectors.double().numpy() - vectors.double().numpy().mean(0)
    expected = (centred @ directions / np.sqrt(variances))[:, ::-1]
    found = Whitening.fit(vectors, 4)(vectors).numpy()
    signs = np.sign((found * expected[:, :4]).sum(0))  # of an eigenvector, which has no sign of its own
    np.testing.assert_allclose(found * signs, expected[:, :4], atol=1e-3)


def test_directions_in_which_nothing_varies_are_left_out():
    """Also where more dimensions are asked for than there are."""
    vectors = torch.cat([sample(width=6), torch.full((400, 1), 2.5), sample(width=6)[:, :2]], 1)
    for width in (None, 9):
        white = Whitening.fit(vectors, width)(vectors)
        assert white.shape == (400, 6)
        np.testing.assert_allclose(spread(white)[1], np.eye(6), atol=5e-3)


def test_samples_that_teach_nothing_are_refused():
    with pytest.raises(InputError, match="one text is no sample"):
        Whitening.fit(torch.ones(1, 4))
    with pytest.raises(InputError, match="the same vector"):
        Whitening.fit(torch.full((30, 4), 0.1))
    nearly = torch.full((30, 4), 0.1) * (1 + 1e-7 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0)))
    assert len(nearly.unique()) > 1
    with pytest.raises(InputError, match="the same vector"):  # one text, in batches that round it differently
        Whitening.fit(nearly)
    for width in (0, -1, 5):
        with pytest.raises(InputError, match=f"dimensions must be from 1 to 4, not {width}"):
            Whitening.fit(torch.eye(4), width)


def test_a_whitening_of_the_wrong_shape_or_type_cannot_be_made():
    for mean, kernel in [((3,), (4, 2)), ((3, 1), (3, 2)), ((3,), (3,)), ((3,), (3, 0))]:
        with pytest.raises(InputError, match="do not fit together"):
            Whitening(torch.zeros(mean), torch.zeros(kernel))
    with pytest.raises(InputError, match="int64, not float32"):
        Whitening(torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64))


def test_a_whitening_goes_where_the_model_is():
    moved = Whitening.fit(sample()).to("meta")
    assert (moved.mean.device.type, moved.kernel.device.type) == ("meta", "meta")
