"""Pieces of command lines, and a small file."""

from __future__ import annotations

from pathlib import Path

from finetuning.small_tasks import reviews, write_table

QUICK = "--max-length 32 --batch-size 4 --rate 5e-3"
SLOW = "--max-length 32 --batch-size 4 --rate 1e-9"
BEGIN = "finetune MODEL --task classify --train a.tsv --output run"
UNKNOWN = "the label 'meh' is not one that training knows (neg, pos); correct it or remove the row, or "
UNKNOWN += "name all classes before training: --set task.labels=[…]"


def write_reviews(path="a.tsv", count=12, seed=0):
    return write_table(Path(path), ("text", "label"), reviews(count, seed))
