"""`bertsmith demo`."""

from __future__ import annotations

from bertsmith.cli.output import percent, print_line

__all__ = ["demo"]


def demo() -> None:
    """Show fill-in in Chinese and sentence search in English, on real weights."""
    from bertsmith.jobs import demo as job

    print_line(f"Fill-in, with {job.FILL_MODEL}:")
    for text, candidates in job.fill_examples():
        shown = "  ".join(f"{candidate.token} {percent(candidate.score)}" for candidate in candidates)
        print_line(f"  {text}\n      {shown}")
    print_line(f"\nSearch among {len(job.SENTENCES)} sentences, with {job.EMBED_MODEL}:")
    for query, nearest in job.nearest_sentences():
        print_line(f"  {query}")
        for sentence, cosine in nearest:
            print_line(f"      {cosine:.2f}  {sentence}")
