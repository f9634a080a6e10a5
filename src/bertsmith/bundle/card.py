"""The model card: the `README.md` of a model folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.bundle.names import ARCHITECTURES

if TYPE_CHECKING:
    from bertsmith.model.heads import BertModel
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["about_reading", "model_card"]

_PIPELINES = {
    "encoder": "feature-extraction",
    "pretraining": "fill-mask",
    "mlm": "fill-mask",
    "classification": "text-classification",
    "choice": "multiple-choice",
    "tagging": "token-classification",
    "span": "question-answering",
}


def model_card(model: BertModel, tokenizer: Tokenizer | None, source: str, task: dict[str, Any] | None = None) -> str:
    """What the folder holds, where it is from, and how to open it with two libraries."""
    config = model.config
    pipeline = _PIPELINES.get(model.kind)
    front = ["---", "library_name: transformers", "tags: [bert, bertsmith]"]
    front += [f"pipeline_tag: {pipeline}"] if pipeline else []
    case = "none" if tokenizer is None else "uncased" if tokenizer.lowercase else "cased"
    total = sum(parameter.numel() for parameter in model.parameters())
    return "\n".join(
        [
            *front,
            "---",
            "",
            "# A BERT model",
            "",
            f"Source: {source}. Written by Bertsmith.",
            "",
            "| | |",
            "|---|---|",
            f"| kind | {model.kind} (`{ARCHITECTURES[model.kind]}`) |",
            f"| shape | {config.num_hidden_layers} × {config.hidden_size}, {config.num_attention_heads} heads |",
            f"| vocabulary | {config.vocab_size} pieces, tokenizer {case} |",
            f"| positions | {config.max_position_embeddings} |",
            f"| parameters | {total:,} |",
            "",
            "```python",
            "import bertsmith",
            'model = bertsmith.load("path/to/this/folder")',
            "```",
            "",
            f"`transformers.{ARCHITECTURES[model.kind]}.from_pretrained` opens the folder as well.",
            "",
            *about_reading(task),
        ]
    )


_ELSEWHERE = "and answers once; elsewhere each sequence has an answer of its own."


def about_reading(task: dict[str, Any] | None) -> list[str]:
    """A paragraph for who runs the model elsewhere, where Bertsmith reads or answers in a way that others do not."""
    options = None if task is None else task.get("options")  # perhaps from elsewhere, and of any kind
    if task is None or not isinstance(options, dict):
        return []
    cut, threshold, found = options.get("long"), options.get("null_threshold"), []
    long = cut.get("mode") if isinstance(cut, dict) else None
    if options.get("both_orders"):
        found.append(f"Bertsmith reads a pair in both orders {_ELSEWHERE}")
    elif long == "segments":
        found.append(f"Bertsmith reads a long text in segments {_ELSEWHERE}")
    elif long in ("tail", "head+tail"):
        what = "end" if long == "tail" else "beginning and end"
        found.append(f"Of a long text Bertsmith reads the {what}; elsewhere the end is cut off.")
    if task.get("kind") in ("tag", "answer"):
        found.append(
            f"Bertsmith reads long text in windows of {options.get('max_length')} pieces; elsewhere it is cut."
        )
    if options.get("context"):
        found.append("It reads the sentences of a document together; elsewhere each stands alone.")
    if options.get("characters"):
        found.append("It takes text character by character; elsewhere give it so.")
    if options.get("unanswerable"):
        ahead = threshold if isinstance(threshold, int | float) else 0.0
        found.append(
            f"It says that there is no answer where that is more than {ahead:.3g} ahead of the best one; this "
            "threshold is nobody else's."
        )
    return [*found, ""] if found else []
