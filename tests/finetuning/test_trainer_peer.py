"""The peer of the benchmarks does what our runs do: the same rows in the same order, to the same weights."""

from __future__ import annotations

import pytest
import torch

from bertsmith.bundle.fitting import split_names
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World
from trainer import make_trainer

WORDS = "encoder.embeddings.word.weight"


@pytest.mark.parametrize(("kind", "pad_to"), [("classify", None), ("classify", 32), ("regress", None), ("tag", None)])
def test_the_trainer_comes_to_our_weights(ask, kinds, tmp_path, kind, pad_to):
    """Padded to the longest of a batch, or to one length; with its own warm-up, one step behind ours, in our loop."""
    asked = ask(kind=kind, train=kinds[kind][-1], dev=None, optimizer__weight_decay=0.1)
    run = FinetuningRun(asked, tmp_path / "none", World(), Observer())
    trainer, _ = make_trainer(run, tmp_path, pad_to=pad_to, evaluate=False)
    trainer.train()
    loop, progress, total = run.make_loop(run.total), Progress(), run.total
    warmup = max(1, round(0.1 * total))
    loop.rate_at = lambda step: step / warmup if step < warmup else (total - step) / (total - warmup)
    for _ in range(total):
        progress, _ = loop.take_step(progress)
    weights = dict(loop.model.state_dict())
    words = run.bundle.model.encoder.embeddings.word
    weights[WORDS] = words.whole(weights[WORDS], loop.decay(words.weight, total))
    ours, theirs = split_names(weights), dict(trainer.model.named_parameters())
    assert ours.keys() >= theirs.keys()
    for name, weight in theirs.items():
        if not name.endswith("key.bias"):  # which softmax does not see: its gradient is rounding alone
            torch.testing.assert_close(ours[name], weight.detach(), rtol=1e-4, atol=1e-5, msg=lambda t, n=name: n + t)


def test_a_run_that_the_trainer_cannot_have_is_refused(ask, tmp_path):
    """It reads one sequence for an example, and knows none of our settings."""
    (tmp_path / "pairs.tsv").write_text("text\tpair\tlabel\ngood river\tbad stone\t0\nfine key\tfine key\t1\n")
    for changes in ({"task__both_orders": True}, {"layer_decay": 0.9}):
        run = FinetuningRun(ask(train=tmp_path / "pairs.tsv", dev=None, **changes), tmp_path, World(), Observer())
        with pytest.raises(ValueError, match="the Trainer"):
            make_trainer(run, tmp_path, evaluate=False)
