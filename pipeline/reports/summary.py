"""What a run ends by saying."""

from pipeline.steps.model import evaluate as evaluate_flow
from pipeline.store import keys
from pipeline.store.versions import Store


def summary(store: Store) -> str:
    """Where the model is, its bits per byte beside xz's, its samples, how to open the UI."""
    exported, found = store.current(keys.EXPORTED_MODEL), evaluate_flow.read(store.current(keys.EVALUATION))
    bits, held_out, xz = found["bits_per_byte"], found["held_out_bytes"], found["compressors"]["xz -9"]
    lines = [
        f"Model        {exported.path}",
        f"Validation   {bits:.3f} bits per byte on {held_out:,} held-out bytes; xz -9 needs {xz:.3f}",
    ]
    for sample in found["samples"][:2]:
        lines += [
            "",
            f"Sample for {sample['prompt']!r}:",
            *(f"    {line}" for line in sample["text"].splitlines()),
        ]
    lines += ["", "To see the graph, every stage and every checkpoint: `make ui`, then http://127.0.0.1:3000"]
    return "\n".join(lines)
