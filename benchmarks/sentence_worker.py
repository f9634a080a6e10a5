"""sentence-transformers in a process, and perhaps an environment, of its own: `encode` on demand.

Run by `sentence_peers.py`; imports nothing of this project. Arguments: backend, model folder, a JSON file of texts,
where to put the vectors, threads. It says `ready`, then for every line on standard input encodes all texts, or the one
of that number, and says `done`; `save` also writes the vectors.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Load, then wait for words."""
    backend, folder, texts_file, target, threads = sys.argv[1:]
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(int(threads))
    texts = json.loads(Path(texts_file).read_text(encoding="utf-8"))
    settings = {}
    if backend == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
        settings = {"provider": "CPUExecutionProvider", "session_options": options}
    elif backend == "openvino":
        settings = {"ov_config": {"INFERENCE_NUM_THREADS": int(threads), "INFERENCE_PRECISION_HINT": "f32"}}
    model = SentenceTransformer(folder, backend=backend, device="cpu", model_kwargs=settings)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        wanted = texts if word in ("all", "save") else texts[int(word)]
        vectors = model.encode(wanted, show_progress_bar=False)
        if word == "save":
            np.save(target, vectors)
        print("done", flush=True)


if __name__ == "__main__":
    main()
