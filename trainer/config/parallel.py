"""How several processes share the work."""

from pydantic import Field

from trainer.config.base import Config
from trainer.config.model import ModelConfig

# Why an optimizer cannot update a model of which each process has a part.
NOT_SPLIT = {
    "muon": "it orthogonalises whole matrices",
    "lion": "its signs follow the last bits of sums, and were not compared with those of one process yet",
    "adafactor": "its moments are means of whole rows and columns",
    "adamw_8bit": "its moments are quantised in blocks that a part may cut",
}


class ParallelConfig(Config):
    """Each size is a number of processes; their product is all there are.

    `dp_replicate` copies of the model read different samples (None: as many as the other sizes leave). Of a copy, each of `dp_shard` processes holds
    a part of the weights, gradients and optimizer state, and reads samples of its own too (FSDP; with several copies HSDP). `tp` processes split each
    matrix, and the sequence between matrices, for the same samples. `reshard_after_forward` gives gathered weights back after a block's forward pass
    and gathers them again for its backward pass: less memory, more traffic. Who waits `timeout_seconds` for another process takes it for dead.
    """

    dp_replicate: int | None = Field(default=None, ge=1)
    dp_shard: int = Field(default=1, ge=1)
    tp: int = Field(default=1, ge=1)
    reshard_after_forward: bool = True
    timeout_seconds: int = Field(default=600, ge=1)

    @property
    def splits_model(self) -> bool:
        """Whether no process holds the whole model."""
        return self.dp_shard > 1 or self.tp > 1

    def check(self, model: ModelConfig, seq_len: int, optimizer: str, dropout: float) -> None:
        """ValueError when a run of this shape cannot be split like this."""
        for name, size in (("n_heads", model.n_heads), ("n_kv_heads", model.n_kv_heads), ("d_ff", model.d_ff), ("seq_len", seq_len)):
            if size % self.tp:
                raise ValueError(f"parallel.tp {self.tp} must divide n_heads, n_kv_heads, d_ff and seq_len, and {name} is {size}")
        if self.tp > 1 and (dropout or model.attention_sinks):
            raise ValueError("parallel.tp does not split dropout or attention sinks: leave tp at 1, or both of them off")
        if self.splits_model and optimizer in NOT_SPLIT:
            raise ValueError(
                f"optimizer.kind {optimizer} cannot update parts of matrices ({NOT_SPLIT[optimizer]}): "
                "choose adamw or sophia, or leave parallel.dp_shard and tp at 1"
            )
