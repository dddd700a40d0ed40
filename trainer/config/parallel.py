"""How several processes share the work."""

from pydantic import Field

from trainer.config.base import Config
from trainer.config.model import ModelConfig

# Why an optimizer cannot update a model of which each process has a part.
NOT_SPLIT = {
    "lion": "its signs follow the last bits of sums, and were not compared with those of one process yet",
    "adafactor": "its moments are means of whole rows and columns",
    "adamw_8bit": "its moments are quantised in blocks that a part may cut",
}


class ParallelConfig(Config):
    """How several processes share the work: the product of `dp_replicate`, `dp_shard`, `tp` and `pp` is the
    number of processes.
    """

    dp_replicate: int | None = Field(
        default=None,
        ge=1,
        description="Copies of the model, each of which reads other samples. When not set, as many as the "
        "other sizes leave processes for.",
    )
    dp_shard: int = Field(
        default=1,
        ge=1,
        description="Processes among which the weights, gradients and optimizer state of a copy are "
        "sharded; each reads samples of its own (FSDP, with several copies HSDP). Raise it when the model "
        "does not fit into one GPU.",
    )
    tp: int = Field(
        default=1,
        ge=1,
        description="Processes that split each matrix, and the sequence between matrices, for the same "
        "samples (tensor parallelism). Must divide `n_heads`, `n_kv_heads`, `d_ff` and `seq_len`. Needs "
        "fast links.",
    )
    pp: int = Field(
        default=1,
        ge=1,
        description="Processes that each hold some of the blocks; micro-batches go from one to the next "
        "(pipeline parallelism, 1F1B).",
    )
    pp_stages: int = Field(
        default=1,
        ge=1,
        description="Runs of blocks per `pp` process. More than one is interleaved 1F1B: less waiting, "
        "more traffic.",
    )
    reshard_after_forward: bool = Field(
        default=True,
        description="Whether weights gathered for a block's forward pass are freed after it and gathered "
        "again for its backward pass: less memory, more traffic. Only matters with `dp_shard`.",
    )
    timeout_seconds: int = Field(
        default=600,
        ge=1,
        description="Seconds that a process waits for another before it takes it for dead and ends.",
    )

    @property
    def splits_model(self) -> bool:
        """Whether no process holds the whole model."""
        return self.dp_shard > 1 or self.tp > 1 or self.pp > 1

    def check(self, model: ModelConfig, seq_len: int, optimizer: str, dropout: float) -> None:
        """ValueError when a run of this shape cannot be split like this."""
        for name, size in (
            ("n_heads", model.n_heads),
            ("n_kv_heads", model.n_kv_heads),
            ("d_ff", model.d_ff),
            ("seq_len", seq_len),
        ):
            if size % self.tp:
                raise ValueError(
                    f"parallel.tp {self.tp} must divide n_heads, n_kv_heads, d_ff and seq_len, and {name} is "
                    f"{size}"
                )
        if self.tp > 1 and (dropout or model.attention_sinks):
            raise ValueError(
                "parallel.tp does not split dropout or attention sinks: leave tp at 1, or both of them off"
            )
        if self.pp_stages > 1 and self.pp == 1:
            raise ValueError(
                "parallel.pp_stages are those of each of several processes: set parallel.pp too, or leave it "
                "at 1"
            )
        if self.pp * self.pp_stages > model.n_layers:
            raise ValueError(
                f"parallel.pp {self.pp} x pp_stages {self.pp_stages} stages need a block each, and n_layers "
                f"is {model.n_layers}"
            )
        if self.pp > 1 and model.tie_embeddings:
            raise ValueError(
                "parallel.pp has the embedding in the first stage and the head in the last: set "
                "tie_embeddings false, or leave pp at 1"
            )
        if self.splits_model and optimizer in NOT_SPLIT:
            raise ValueError(
                f"optimizer.kind {optimizer} cannot update parts of matrices ({NOT_SPLIT[optimizer]}): "
                "choose adamw, sophia or muon, or leave parallel.dp_shard, tp and pp at 1"
            )
