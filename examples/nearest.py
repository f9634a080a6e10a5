"""Search a text file by meaning: python examples/nearest.py FILE "a question"."""

import sys
from pathlib import Path

import bertsmith

file, query = sys.argv[1:]
lines = [line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
model = bertsmith.load("minilm")
cosines = (model.embed(lines, normalize=True) @ model.embed([query], normalize=True).T)[:, 0]
for number in cosines.argsort()[::-1][:3]:
    sys.stdout.write(f"{cosines[number]:.2f}  {lines[number]}\n")
