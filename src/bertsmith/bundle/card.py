"""The model card: the `README.md` of a model folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.bundle.names import ARCHITECTURES

if TYPE_CHECKING:
    from bertsmith.model.heads import BertModel
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["about_joining", "model_card"]

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
            *about_joining(task),
        ]
    )


def about_joining(task: dict[str, Any] | None) -> list[str]:
    """A paragraph for who runs the model elsewhere, where it answers from several sequences."""
    options = (task or {}).get("options", {})
    if options.get("both_orders"):
        how = "a pair in both orders"
    elif options.get("long", {}).get("mode") == "segments":
        how = "a long text in segments"
    else:
        return []
    return [f"Bertsmith reads {how} and answers once; elsewhere each sequence has an answer of its own.", ""]
