"""From strings to sentence vectors: MiniLM on texts of mixed length, against what people use today.

Contenders, all in this process, float32, the same number of threads, results compared first:
`transformers` with its unsorted batches of 32; and, sorted by length in tokens, `transformers`,
onnxruntime (graph-optimised) and OpenVINO (one stream of all threads, or a stream for each: the better).
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import warnings
from pathlib import Path
from pydoc_data import topics
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import bertsmith
import harness
from bertsmith.bundle.resolve import find_model

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "minilm"
MAX_LENGTH = 256
BATCH = 32
TOLERANCE = 1e-5


def mixed_texts(count: int, seed: int = 0) -> list[str]:
    """Runs of words from Python's own documentation; their lengths are log-normal, 3 to 180 words."""
    words = " ".join(topics.topics.values()).split()
    rng = random.Random(seed)
    sizes = [min(180, max(3, round(rng.lognormvariate(2.68, 0.75)))) for _ in range(count)]
    starts = [rng.randrange(len(words) - size) for size in sizes]
    return [" ".join(words[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def operations(lengths: list[int], config: bertsmith.BertConfig) -> int:
    """Floating-point operations of the matrix products that these sequences need, without padding."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = sum(2 * (4 * width + 2 * inner) * width * n + 4 * n * n * width for n in lengths)
    return config.num_hidden_layers * layer


class Peers:
    """The other ways, each from strings to vectors."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.onnx = scratch / "model.onnx"
        _export(self.model, self.onnx)

    def transformers(self, texts: list[str], *, sort: bool) -> np.ndarray:
        """`transformers`, padded to the longest of each batch of 32."""

        def run(batch: dict[str, np.ndarray]) -> np.ndarray:
            with torch.inference_mode():
                inputs = {name: torch.from_numpy(grid) for name, grid in batch.items()}
                return self.model(**inputs).last_hidden_state.numpy()

        return self._each_batch(texts, run, sort=sort)

    def onnxruntime(self, threads: int) -> Callable[[list[str]], np.ndarray]:
        """Onnxruntime with every graph optimisation, the offline transformer fusions included."""
        import onnxruntime
        from onnxruntime.transformers import optimizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        config = self.model.config
        fused = optimizer.optimize_model(
            str(self.onnx), "bert", config.num_attention_heads, config.hidden_size, opt_level=99
        )
        fused_file = self.onnx.with_name("fused.onnx")
        fused.save_model_to_file(str(fused_file))
        session = onnxruntime.InferenceSession(str(fused_file), options, providers=["CPUExecutionProvider"])
        return lambda texts: self._each_batch(texts, lambda batch: session.run(None, batch)[0], sort=True)

    def plain_onnxruntime(self, path: Path, threads: int) -> Callable[[list[str]], np.ndarray]:
        """A model file that gives hidden states, in onnxruntime as it is."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        wanted = ["last_hidden_state"]
        return lambda texts: self._each_batch(texts, lambda batch: session.run(wanted, batch)[0], sort=True)

    def openvino(self, threads: int) -> Callable[[list[str]], np.ndarray]:
        """OpenVINO with all threads on one batch at a time."""
        request = self._compiled(threads, streams=1).create_infer_request()
        return lambda texts: self._each_batch(texts, lambda batch: request.infer(batch)[0], sort=True)

    def openvino_streams(self, threads: int) -> Callable[[list[str]], np.ndarray]:
        """OpenVINO with one batch on each thread."""
        import openvino

        compiled = self._compiled(threads, streams=threads)

        def run(texts: list[str]) -> np.ndarray:
            vectors = np.empty((len(texts), self.model.config.hidden_size), dtype=np.float32)
            queue = openvino.AsyncInferQueue(compiled, threads)

            def done(request: Any, job: tuple[list[int], np.ndarray]) -> None:
                numbers, mask = job
                vectors[numbers] = _mean(request.get_output_tensor().data, mask)

            queue.set_callback(done)
            for numbers, batch in self._batches(texts, sort=True):
                queue.start_async(batch, (numbers, batch["attention_mask"]))
            queue.wait_all()
            return vectors

        return run

    def _compiled(self, threads: int, streams: int) -> Any:
        import openvino

        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams, "INFERENCE_PRECISION_HINT": "f32"}
        return openvino.Core().compile_model(str(self.onnx), "CPU", settings)

    def _each_batch(
        self, texts: list[str], run: Callable[[dict[str, np.ndarray]], np.ndarray], *, sort: bool
    ) -> np.ndarray:
        vectors = np.empty((len(texts), self.model.config.hidden_size), dtype=np.float32)
        for numbers, batch in self._batches(texts, sort=sort):
            vectors[numbers] = _mean(run(batch), batch["attention_mask"])
        return vectors

    def _batches(self, texts: list[str], *, sort: bool) -> Any:
        """Unsorted: tokenised batch by batch, as people do. Sorted: all at once, then by length in tokens."""
        if not sort:
            for start in range(0, len(texts), BATCH):
                part = texts[start : start + BATCH]
                batch = self.tokenizer(part, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="np")
                yield list(range(start, start + len(part))), dict(batch)
            return
        ids = self.tokenizer(texts, truncation=True, max_length=MAX_LENGTH, padding=False)
        order = sorted(range(len(texts)), key=lambda number: -len(ids["input_ids"][number]))
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            rows = {name: [values[number] for number in numbers] for name, values in ids.items()}
            yield numbers, dict(self.tokenizer.pad(rows, return_tensors="np"))


def _mean(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    weights = mask[:, :, None].astype(np.float32)
    return (states * weights).sum(1) / weights.sum(1)


def _export(model: torch.nn.Module, target: Path) -> None:
    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
        ) -> torch.Tensor:
            return self.model(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    example = torch.ones(2, 8, dtype=torch.int64)
    mask = example.tril()  # with padding in it: a mask of ones would be optimised away
    shape = {0: torch.export.Dim("batch", min=1, max=1024), 1: torch.export.Dim("length", min=2, max=512)}
    names = ["input_ids", "attention_mask", "token_type_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = (example, mask, torch.zeros_like(example))
        shapes = (shape,) * 3
        torch.onnx.export(
            Wrapped(), inputs, str(target), dynamo=True, verbose=False, input_names=names, dynamic_shapes=shapes
        )


def main() -> int:
    """Measure, check, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--texts", type=int, help="1,000; for sentences and int8 5,000")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--part", choices=["runtimes", "sentences", "latency", "int8"], default="runtimes")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    texts = mixed_texts(options.texts or (1000 if options.part == "runtimes" else 5000))
    if options.part != "runtimes":
        return other_part(options, texts)
    ours = bertsmith.load(MODEL)
    lengths = [len(row.ids) for row in ours.tokenizer.encode_batch(texts, max_length=MAX_LENGTH)]
    with tempfile.TemporaryDirectory() as scratch:
        peers = Peers(find_model(MODEL)[0], Path(scratch))
        onnx, vino, vino_streams = (
            peers.onnxruntime(options.threads), peers.openvino(options.threads), peers.openvino_streams(options.threads)
        )  # fmt: skip
        contenders: dict[str, Callable[[], np.ndarray]] = {
            "bertsmith": lambda: ours.embed(texts, max_length=MAX_LENGTH),
            "transformers": lambda: peers.transformers(texts, sort=False),
            "transformers, sorted": lambda: peers.transformers(texts, sort=True),
            "onnxruntime, sorted": lambda: onnx(texts),
            "OpenVINO, sorted": lambda: vino(texts),
            "OpenVINO, sorted, streams": lambda: vino_streams(texts),
        }
        reference = contenders["transformers"]()
        errors = {  # and a warm-up
            name: float(np.abs(run() - reference).max() / np.abs(reference).max()) for name, run in contenders.items()
        }
        seconds, peaks = harness.take_turns(contenders, options.rounds)
    return report(options, lengths, ours.model.config, seconds, errors, peaks)


def other_part(options: Any, texts: list[str]) -> int:
    """Those beside sentence-transformers, which have pages of their own."""
    from encode_sentences import measure_int8, measure_latency, measure_sentences

    ours = bertsmith.load(MODEL)
    lengths = [len(row) for row in ours.tokenizer.encode_ids(texts, max_length=MAX_LENGTH)]
    needed = operations(lengths, ours.model.config)
    if options.part == "sentences":
        return measure_sentences(options, texts, needed)
    if options.part == "latency":
        return measure_latency(options, texts, operations)
    with tempfile.TemporaryDirectory() as scratch:
        peers = Peers(find_model(MODEL)[0], Path(scratch))
        return measure_int8(options, texts, needed, lambda path: peers.plain_onnxruntime(path, options.threads))


def report(
    options: Any,
    lengths: list[int],
    config: Any,
    seconds: dict[str, list[float]],
    errors: dict[str, float],
    peaks: list[Any],
) -> int:
    """The page; gives 1 where results differ or a target is missed."""
    needed = operations(lengths, config)
    mine = statistics.median(seconds["bertsmith"])
    share = harness.peak_share(needed, seconds["bertsmith"], peaks)
    best = min((name for name in seconds if "sorted" in name), key=lambda name: statistics.median(seconds[name]))
    unsorted_ratio = harness.ratio_interval(seconds["bertsmith"], seconds["transformers"])
    best_ratio = harness.ratio_interval(seconds["bertsmith"], seconds[best])
    rows = [
        f"| {name} | {statistics.median(times):.2f} ({min(times):.2f}–{max(times):.2f}) | "
        f"{statistics.median(times) / mine:.2f}× | {errors[name]:.1e} |"
        for name, times in seconds.items()
    ]
    verdicts = [
        (
            "against `transformers`, unsorted",
            "at least 3.5×",
            harness.interval(unsorted_ratio),
            unsorted_ratio[0] >= 3.5,
        ),
        (
            f"against the best peer ({best})",
            "at least 1.0×, aim 1.1×",
            harness.interval(best_ratio),
            best_ratio[0] >= 1.0,
        ),
        ("share of the peak", "at least 70%, aim 80%", f"{share:.0%}", share >= 0.7),
        ("results equal", "1e-5", f"{max(errors.values()):.1e}", max(errors.values()) <= TOLERANCE),
    ]
    harness.show(
        "encode",
        "From strings to sentence vectors",
        [
            (__doc__ or "").strip(),
            "",
            f"MiniLM (6 layers of 384), {len(lengths)} texts, {statistics.mean(lengths):.1f} tokens on average "
            f"({min(lengths)} to {max(lengths)}), {options.threads} threads, {options.rounds} rounds.",
            f"Peak of this machine, measured in every round: {harness.describe_peaks(peaks)}. "
            f"Operations needed: {needed / 1e9:.0f} GFLOP.",
            "",
            "| contender | seconds, median (range) | bertsmith is faster by | largest difference, relative |",
            "|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions("transformers", "onnxruntime", "openvino"),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
