"""`bertsmith VERB`: results on stdout, everything else on stderr.

Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import signal
import sys

from cyclopts import App, CycloptsError

import bertsmith
from bertsmith.errors import BertsmithError, InputError, SaidByMainError

__all__ = ["VERBS", "app", "main", "run"]

# Verbs are loaded when they are called, so what `--help` says of each stands here: what it does, and an example.
VERBS = {
    "answer": (
        "Find the answer to a question in a text.",
        "bertsmith answer run/ --question 'Who wrote it?' --context - < text.txt",
    ),
    "choose": (
        "Say which of several texts goes with a text.",
        "bertsmith choose run/ 'She opened the door' 'and went in.' 'and it was Tuesday.'",
    ),
    "classify": (
        "Say which class a text is of.",
        "bertsmith classify run/ 'a charming and often affecting journey'",
    ),
    "convert": (
        "Write a model as a folder for Hugging Face, ONNX or sentence-transformers.",
        "bertsmith convert uncased_L-12_H-768_A-12/ bert-base/",
    ),
    "demo": (
        "Go the whole way: the built-in text, a vocabulary, shards, and a tiny BERT in three minutes.",
        "bertsmith demo",
    ),
    "embed": (
        "Turn texts, or pairs of texts, into vectors.",
        "bertsmith embed minilm --input texts.txt --output vectors.npy --normalize",
    ),
    "evaluate": (
        "Score a fine-tuned model on a file that tells what is right.",
        "bertsmith evaluate run/ --data test.tsv --report test.html",
    ),
    "fill": (
        "Say what stands at each [MASK] of a text.",
        "bertsmith fill albert-tiny-zh 今天天气很[MASK]。 --top 3",
    ),
    "finetune": (
        "Fine-tune a model for a task: classes, numbers, choices, tags or answers.",
        "bertsmith finetune minilm --task classify --train train.tsv --dev dev.tsv --output run/",
    ),
    "glue": (
        "Fine-tune a model on every task of GLUE that is there, and print GLUE's table.",
        "bertsmith glue minilm --data glue/",
    ),
    "inspect": (
        "Show a model (shape, parameters, memory, tokenizer; no weights are loaded) or a data set of token shards.",
        "bertsmith inspect base, or bertsmith inspect minilm --json",
    ),
    "models": (
        "List the models on this machine that can be opened by name.",
        "bertsmith models",
    ),
    "predict": (
        "Say what a fine-tuned model makes of every example of a file, in its order.",
        "bertsmith predict run/ --input texts.txt --output predictions.jsonl",
    ),
    "pretrain": (
        "Pre-train a BERT on token shards, with masked words and sentence pairs.",
        "bertsmith pretrain --shards data/ --size mini --output run/ --minutes 60",
    ),
    "report": (
        "Show a run as one HTML page with curves, settings, data and examples; also while it goes on.",
        "bertsmith report run/",
    ),
    "serve": (
        "Serve models over HTTP, with a page to try them on.",
        "bertsmith serve minilm --port 8000",
    ),
    "shards": (
        "Turn raw text into token shards, ready for pre-training.",
        "bertsmith shards corpus/ --tokenizer vocab/ --output data/",
    ),
    "tag": (
        "Find the entities of a text.",
        "bertsmith tag run/ 'Marie Curie lived in Paris.'",
    ),
    "vocab": (
        "Learn a WordPiece vocabulary from raw text.",
        "bertsmith vocab corpus/ --output vocab/ --size 30522",
    ),
    "whiten": (
        "Fit a whitening of sentence vectors on texts, and write the model with it.",
        "bertsmith whiten bert-base/ --input texts.txt --output whitened/",
    ),
}

app = App(
    name="bertsmith",
    help="BERT, whole: from raw text to a served model.",
    version=bertsmith.__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    help_epilogue="MODEL is a model folder, a name from `bertsmith models`, or a name on the hub.",
)
for verb, (about, example) in VERBS.items():
    app.command(f"bertsmith.cli.{verb}:{verb}", name=verb, help=f"{about}\n\nExample: {example}")


def main() -> None:
    """The entry point of the `bertsmith` command. SIGTERM ends it as Ctrl-C does, unless a verb listens itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; gives its exit code."""
    if sys.stdout is None:
        return _fail(InputError("standard output: is closed; results have nowhere to go"), 2)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of another encoding shows what it can
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError:
        return 2  # already printed
    except SaidByMainError:
        return 1
    except InputError as error:
        return _fail(error, 2)
    except BertsmithError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader of our output went away, as `head` does; nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(error, 1)
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps one that comes while a class is made
            return _interrupted()
        raise
    return 0


def _interrupted() -> int:
    sys.stderr.write("\ninterrupted\n")
    return 130


def _fail(error: Exception, code: int) -> int:
    sys.stderr.write(f"bertsmith: {error}\n")
    return code
