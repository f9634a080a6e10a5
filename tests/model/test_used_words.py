"""The rows of a word table that some texts read stand for the whole table while these are trained on."""

from __future__ import annotations

import torch
from torch import nn

from bertsmith.model.words import UsedWords

IDS = torch.tensor([[7, 2, 2], [9, 7, 0]])


def make_table() -> nn.Embedding:
    table = nn.Embedding(12, 4)
    with torch.no_grad():
        table.weight.copy_(torch.arange(48.0).view(12, 4))
    return table


def test_the_same_ids_give_the_same_rows_and_gradients():
    table = make_table()
    words = UsedWords(table, IDS)
    assert words.num_embeddings == 12
    assert words.weight.shape == (4, 4)  # 0, 2, 7 and 9
    assert torch.equal(words(IDS), table(IDS))
    for module in (table, words):
        (module(IDS) * torch.arange(6.0).view(2, 3, 1)).sum().backward()
    assert torch.equal(words.weight.grad, table.weight.grad[[0, 2, 7, 9]])


def test_the_whole_has_trained_rows_in_their_places_and_the_others_decayed():
    table = make_table()
    before = table.weight.detach().clone()
    words = UsedWords(table, IDS)
    found = words.whole(torch.full((4, 4), -1.0) * torch.arange(1, 5)[:, None], decayed=0.5)
    expected = before / 2
    expected[[0, 2, 7, 9]] = -torch.arange(1.0, 5.0)[:, None].expand(4, 4)
    assert torch.equal(found, expected)
    assert torch.equal(table.weight, before)


def test_checkpoints_have_the_rows_and_nothing_else():
    words = UsedWords(make_table(), IDS)
    assert set(words.state_dict()) == {"weight"}
    assert not list(words.buffers())
