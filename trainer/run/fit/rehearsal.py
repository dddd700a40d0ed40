"""A first micro-batch before training, so that a run that does not fit or compile fails at once."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.run.fit.memory import is_out_of_memory
from trainer.run.session import Session
from trainer.run.step import add_gradients
from trainer.system.errors import TrainerError, first_line


def dry_run(session: Session) -> None:
    """Computes gradients of a micro-batch per process of a pipeline. Raises TrainerError if that fails."""
    rows = session.plan.data.batch(session.step, session.world.data_rank, session.world.data_size)
    micro_batch_size = session.training.micro_batch_tokens // (rows.shape[1] - 1)
    windows = torch.from_numpy(rows[: micro_batch_size * session.training.parallel.pp])
    context, training = session.context, session.training
    if session.world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # larger micro-batches may have been tried
    with explained(f"one micro-batch of {training.micro_batch_windows} x {training.seq_len} tokens"):
        add_gradients(session.model, context.batch(windows.to(session.world.device)), context)
    session.model.zero_grad(set_to_none=True)


@contextmanager
def explained(batch: str) -> Iterator[None]:
    """Turns the errors of a first `batch` into TrainerError: out of memory, or a failed compilation."""
    try:
        yield
    except Exception as error:
        if _is_from_compiler(error):
            raise TrainerError(
                f"the model cannot be compiled ({first_line(error)}); set training.compile to false, "
                "and on a GPU training.attention to flash, or sdpa in fp32, because flex is compiled in any "
                "case. If a killed "
                "compiler left a broken file, delete torch's cache (TORCHINDUCTOR_CACHE_DIR, or "
                "torchinductor_<user> in the temporary directory)"
            ) from error
        if not is_out_of_memory(error):
            raise
        raise TrainerError(
            f"{batch} does not fit ({first_line(error)}). Lower training.micro_batch_size or "
            "training.seq_len, or use a smaller model"
        ) from error


def _is_from_compiler(error: Exception) -> bool:
    dynamo = sys.modules.get("torch._dynamo.exc")  # not imported here: that takes a second
    if dynamo is None:
        return False
    return isinstance(error, (dynamo.TorchDynamoException, dynamo.FailOnRecompileLimitHit))
