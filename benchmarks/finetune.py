"""Fine-tuning: scores on real sets (`--part glue`, `conll`, `chinese`, `answers`, `long`, `worth`), and `speed`.

MiniLM is the encoder, m3e-small for Chinese. Every (task, settings, seed) is a run that is not repeated: its
record is kept in docs/results/finetune-runs.jsonl, so that the whole can be spread over days and machines. Scores are
those of the best epoch on the dev file.
"""

from __future__ import annotations

import sys

import harness
from bertsmith.model.memory import keep_freed_memory


def main() -> int:
    """Run one part, or all in order."""
    from finetune_scores import PARTS
    from finetune_speed import measure_speed

    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--part", choices=[*PARTS, "speed", "all"], default="all")
    arguments.add_argument("--only", default="", help="runs whose name contains this, without a page")
    arguments.add_argument("--seeds", type=int, help="fewer seeds than the page has")
    arguments.add_argument("--rounds", type=int, default=5, help="of the speed")
    options = arguments.parse_args()
    keep_freed_memory()
    failed = 0
    for name, part in PARTS.items():
        if options.part in (name, "all"):
            failed |= part(options)
    if options.part in ("speed", "all"):
        failed |= measure_speed(options)
    return failed


if __name__ == "__main__":
    sys.exit(main())
