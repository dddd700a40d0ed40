"""The summary at the end of a run."""

from pipeline.steps.model import evaluate
from pipeline.store import keys
from pipeline.store.versions import Store


def summary(store: Store) -> str:
    """The path of the model, its bits per byte compared with xz, samples, and how to open the UI."""
    exported = store.current(keys.EXPORTED_MODEL)
    evaluation = evaluate.read(store.current(keys.EVALUATION))
    bits, held_out = evaluation["bits_per_byte"], evaluation["held_out_bytes"]
    xz = evaluation["compressors"]["xz -9"]
    lines = [
        f"Model        {exported.path}",
        f"Validation   {bits:.3f} bits per byte on {held_out:,} held-out bytes; xz -9 needs {xz:.3f}",
    ]
    for sample in evaluation["samples"][:2]:
        lines += [
            "",
            f"Sample for {sample['prompt']!r}:",
            *(f"    {line}" for line in sample["text"].splitlines()),
        ]
    lines += ["", "To see the graph, every stage and every checkpoint: `make ui`, then http://127.0.0.1:3000"]
    return "\n".join(lines)
