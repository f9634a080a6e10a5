"""Every head and every loss against `transformers`, forwards and backwards."""

from __future__ import annotations

import pytest
import torch

from bertsmith.bundle.fitting import split_names
from bertsmith.errors import InputError
from bertsmith.model import heads
from bertsmith.model import losses as loss_module
from bertsmith.model.losses import classification_loss, span_loss, tied_cross_entropy
from twins import TINY, mixed_batch, padded, random_model, relative_error, their_twin, unpadded


def packed(batch):
    return batch.input_ids, batch.token_type_ids, batch.lengths


def check_gradients(model, theirs, unseen=()):
    """Every parameter's gradient, to 1e-4 of its own largest entry.

    What moves all inputs of a softmax alike has a gradient of zero but for rounding (the bias of the keys;
    in the span model also the last biases): it is held against the largest gradient there is.
    """
    gradients = split_names({name: parameter.grad for name, parameter in model.named_parameters()})
    others = dict(theirs.named_parameters())
    assert set(gradients) == set(others)
    largest = max(float(parameter.grad.abs().max()) for parameter in others.values())
    for name, parameter in others.items():
        if name.endswith(("key.bias", *unseen)):
            assert float(gradients[name].abs().max()) < 1e-6 * largest, name
        else:
            assert relative_error(gradients[name], parameter.grad) < 1e-4, name


def test_pretraining_logits_and_gradients():
    model = random_model("pretraining")
    theirs = their_twin(model)
    batch = mixed_batch()
    rng = torch.Generator().manual_seed(1)
    masked = torch.randperm(len(batch.input_ids), generator=rng)[:21]
    words = torch.randint(TINY.vocab_size, (21,), generator=rng)
    pairs = torch.randint(2, (len(batch.lengths),), generator=rng)
    labels = torch.full_like(batch.input_ids, -100).index_copy(0, masked, words)
    grid = torch.nn.utils.rnn.pad_sequence(
        list(labels.split(batch.lengths.tolist())), batch_first=True, padding_value=-100
    )
    output = theirs(**padded(batch), labels=grid, next_sentence_label=pairs)
    with torch.no_grad():
        logits = model(*packed(batch), masked)
    scores = model.score(*packed(batch), masked, words, pairs)
    assert relative_error(logits.mlm, unpadded(output.prediction_logits, batch)[masked]) < 1e-5
    assert relative_error(logits.pair, output.seq_relationship_logits) < 1e-5
    assert scores.mlm_correct == (logits.mlm.argmax(1) == words).sum()
    assert scores.pair_correct == (logits.pair.argmax(1) == pairs).sum()
    loss = scores.mlm_loss / len(words) + scores.pair_loss / len(pairs)
    torch.testing.assert_close(loss, output.loss)
    loss.backward()
    output.loss.backward()
    check_gradients(model, theirs)


@pytest.mark.parametrize("num_labels", [1, 3])
def test_classification_and_regression_gradients(num_labels):
    model = random_model("classification", TINY.derive(num_labels=num_labels, id2label=None))
    theirs = their_twin(model)
    batch = mixed_batch()
    labels = torch.arange(7) % num_labels if num_labels > 1 else torch.linspace(-1, 1, 7)
    output = theirs(**padded(batch), labels=labels)
    logits = model(*packed(batch))
    loss = classification_loss(logits, labels)
    assert relative_error(logits, output.logits) < 1e-5
    torch.testing.assert_close(loss, output.loss)
    loss.backward()
    output.loss.backward()
    check_gradients(model, theirs)


def test_span_gradients():
    model = random_model("span")
    theirs = their_twin(model)
    batch = mixed_batch()
    starts = batch.lengths // 3
    ends = (starts + 2).minimum(batch.lengths - 1)
    inputs = padded(batch)
    output = theirs(**inputs)
    logits = model(*packed(batch))
    grid = torch.stack((output.start_logits, output.end_logits), dim=-1)
    assert relative_error(logits, unpadded(grid, batch)) < 1e-5
    # transformers lets padding take part in its span loss; the loss of the paper is over real tokens.
    grid = grid.masked_fill(inputs["attention_mask"][..., None] == 0, float("-inf"))
    reference = (
        sum(torch.nn.functional.cross_entropy(grid[..., side], at) for side, at in enumerate((starts, ends))) / 2
    )
    loss = span_loss(logits, batch.lengths, torch.stack((starts, ends), dim=1))
    torch.testing.assert_close(loss, reference)
    loss.backward()
    reference.backward()
    check_gradients(model, theirs, unseen=("layer.2.output.LayerNorm.bias", "qa_outputs.bias"))


def test_tagging_all_tokens_or_the_first_pieces_only():
    model = random_model("tagging")
    batch = mixed_batch()
    with torch.no_grad():
        theirs = unpadded(their_twin(model)(**padded(batch)).logits, batch)
        assert relative_error(model(*packed(batch)), theirs) < 1e-5
        read = torch.arange(0, len(batch.input_ids), 3)
        assert relative_error(model(*packed(batch), read), theirs[read]) < 1e-5


def test_mlm_and_pair_alone():
    batch = mixed_batch()
    masked = torch.tensor([3, 0, 60])
    with torch.no_grad():
        model = random_model("mlm")
        theirs = unpadded(their_twin(model)(**padded(batch)).logits, batch)
        assert relative_error(model(*packed(batch), masked), theirs[masked]) < 1e-5
        model = random_model("pair")
        assert relative_error(model(*packed(batch)), their_twin(model)(**padded(batch)).logits) < 1e-5


def test_multiple_choice():
    model = random_model("choice")
    batch = mixed_batch(lengths=(7, 5, 33, 7, 64, 2))
    inputs = {name: grid.view(2, 3, -1) for name, grid in padded(batch).items()}
    with torch.no_grad():
        assert relative_error(model(*packed(batch), 3), their_twin(model)(**inputs).logits) < 1e-5
        with pytest.raises(InputError, match="4 choices"):
            model(*packed(batch), 4)


@pytest.mark.parametrize("rows_per_block", [1, 4, 10, 1000])
def test_the_loss_of_masked_words_is_that_of_the_whole_logits(rows_per_block, monkeypatch):
    """Value, hits and all three gradients, however the rows are cut into blocks; also far out, where exp overflows."""
    monkeypatch.setattr(loss_module, "_BLOCK_BYTES", 4 * 37 * rows_per_block)
    torch.manual_seed(0)
    inputs = [(torch.randn(shape) * scale).requires_grad_() for shape, scale in (((10, 8), 60), ((37, 8), 1), (37, 3))]
    labels = torch.randint(37, (10,))
    logits = torch.nn.functional.linear(inputs[0], inputs[1], inputs[2])
    plain = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / 7
    wanted = torch.autograd.grad(plain, inputs)
    loss, correct = tied_cross_entropy(*inputs, labels)
    torch.testing.assert_close(loss / 7, plain)
    assert correct == (logits.argmax(1) == labels).sum()
    for ours, theirs in zip(torch.autograd.grad(loss / 7, inputs), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_batch_without_masked_words_has_a_loss_of_zero():
    rows, table, bias = torch.randn(0, 8, requires_grad=True), torch.randn(37, 8, requires_grad=True), torch.zeros(37)
    loss, correct = tied_cross_entropy(rows, table, bias, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert (loss.item(), int(correct), float(table.grad.abs().sum())) == (0.0, 0, 0.0)


@pytest.mark.parametrize("kind", ["pretraining", "classification", "span", "tagging", "choice"])
def test_one_batch_is_learnt_by_heart(kind):
    """Each loss falls when a small model sees one batch again and again, with dropout on."""
    torch.manual_seed(0)
    model = random_model(kind, TINY.derive(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)).train()
    batch = mixed_batch(lengths=(7, 5, 33, 7, 64, 2))
    masked = torch.arange(0, len(batch.input_ids), 7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def losses():
        if kind == "pretraining":
            scores = model.score(*packed(batch), masked, batch.input_ids[masked], torch.arange(6) % 2)
            return [scores.mlm_loss / len(masked), scores.pair_loss / 6]
        if kind == "span":
            return [
                span_loss(model(*packed(batch)), batch.lengths, torch.stack((batch.lengths // 2, batch.lengths - 1), 1))
            ]
        if kind == "choice":
            return [classification_loss(model(*packed(batch), 3), torch.tensor([2, 0]))]
        if kind == "tagging":
            return [classification_loss(model(*packed(batch)), batch.input_ids % 3)]
        return [classification_loss(model(*packed(batch)), torch.arange(6) % 3)]

    first = [loss.item() for loss in losses()]
    for _ in range(150):
        optimizer.zero_grad()
        sum(losses()).backward()
        optimizer.step()
    model.eval()
    for before, after in zip(first, losses(), strict=True):
        assert after.item() < before / 2


@pytest.mark.parametrize("at_once", [1, 7, 20])
def test_a_text_in_many_segments_is_the_same_in_parts(at_once, monkeypatch):
    """Without a gradient, a part of it is in memory at a time; with one, all of it is."""
    model = random_model("classification")
    model.join_segments("attention", torch.Generator().manual_seed(1))
    lengths, groups = torch.tensor([5, 3, 6, 2, 4]), torch.tensor([4, 1])
    ids = torch.randint(4, 60, (int(lengths.sum()),), generator=torch.Generator().manual_seed(0))
    whole = model(ids, None, lengths, groups).detach()
    sizes = []
    encode = model.encoder.encode_pooled
    monkeypatch.setattr(heads, "_TOKENS_AT_ONCE", at_once)
    monkeypatch.setattr(model.encoder, "encode_pooled", lambda *given: sizes.append(len(given[0])) or encode(*given))
    with torch.no_grad():
        for types in (None, torch.zeros_like(ids)):
            torch.testing.assert_close(model(ids, types, lengths, groups), whole, rtol=1e-5, atol=1e-6)
    assert max(sizes) <= at_once + 6
    assert sum(sizes) == 2 * len(ids)
    model(ids, None, lengths, groups)
    assert sizes[-1] == len(ids)
