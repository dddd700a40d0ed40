"""How several processes share the work."""

from pydantic import Field

from trainer.config.base import Config
from trainer.config.model import ModelConfig
from trainer.system.errors import TrainerError

# Optimizers that cannot update a model that is split over processes, and why.
UNSPLITTABLE = {
    "adafactor": "its moments are means over entire rows and columns",
    "adamw_8bit": "its moments are quantized in blocks that a split may cut",
    "python": "nobody has compared the class on parts of weights with one process",
}


class ParallelConfig(Config):
    """How several processes share the work. A copy of the model takes `dp_shard` x `tp` x `pp` processes. If
    there are more processes, there are several copies, each of which reads other samples.
    """

    dp_shard: int = Field(default=1, ge=1)
    """Processes among which the weights, gradients and optimizer state of a copy are sharded; each reads
    samples of its own (FSDP, with several copies HSDP). Raise it when the model does not fit into one GPU.
    """
    tp: int = Field(default=1, ge=1)
    """Processes that split each matrix, and the sequence between matrices, for the same samples (tensor
    parallelism). Must divide `n_heads`, `n_kv_heads`, `d_ff` and `seq_len`. Needs fast links.
    """
    pp: int = Field(default=1, ge=1)
    """Processes that each hold some of the blocks; micro-batches go from one to the next (pipeline
    parallelism, 1F1B).
    """
    reshard_after_forward: bool = True
    """Whether weights gathered for a block's forward pass are freed after it and gathered again for its
    backward pass: less memory, more traffic. Only matters with `dp_shard`.
    """
    timeout_seconds: int = Field(default=600, ge=1)
    """Seconds that a process waits for another process before it assumes that the other is dead, and ends."""

    @property
    def splits_model(self) -> bool:
        """Whether each process holds only a part of the model."""
        return self.dp_shard > 1 or self.tp > 1 or self.pp > 1

    @property
    def processes(self) -> int:
        """How many processes hold one copy of the model."""
        return self.dp_shard * self.tp * self.pp

    def check_processes(self, number: int) -> None:
        """Raises TrainerError unless so many processes hold whole copies of the model."""
        if number % self.processes:
            raise TrainerError(
                f"training.parallel needs a multiple of dp_shard {self.dp_shard} x tp {self.tp} x pp "
                f"{self.pp} = {self.processes} processes, but there are {number}: start "
                f"`torchrun --nproc-per-node={self.processes} -m trainer ...`, or change training.parallel"
            )

    def check(self, model: ModelConfig, seq_len: int, optimizer: str, dropout: float) -> None:
        """Raises ValueError when this model and optimizer cannot be split like this."""
        sizes = {"n_heads": model.n_heads, "n_kv_heads": model.n_kv_heads, "d_ff": model.d_ff}
        for name, size in {**sizes, "seq_len": seq_len}.items():
            if size % self.tp:
                raise ValueError(
                    f"parallel.tp {self.tp} does not divide {name} {size}: choose a tp that divides n_heads, "
                    "n_kv_heads, d_ff and seq_len"
                )
        if self.tp > 1 and dropout:
            raise ValueError("parallel.tp cannot split dropout: leave tp at 1, or turn dropout off")
        if self.pp > model.n_layers:
            raise ValueError(
                f"parallel.pp {self.pp} is more than n_layers {model.n_layers}, and each process needs a "
                "block: lower pp"
            )
        if self.pp > 1 and model.tie_embeddings:
            raise ValueError(
                "parallel.pp puts the embedding and the head on different processes, so they cannot share "
                "weights: set model.tie_embeddings to false, or leave pp at 1"
            )
        if self.splits_model and optimizer in UNSPLITTABLE:
            raise ValueError(
                f"optimizer.kind {optimizer} cannot update a split model ({UNSPLITTABLE[optimizer]}): choose "
                "adamw, muon, lion or sophia, or leave parallel.dp_shard, tp and pp at 1"
            )
