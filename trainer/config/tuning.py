"""Tuning after pretraining: on the answers of conversations, or on preferences between two answers."""

from typing import Any, Literal

from pydantic import Field

from trainer.config.base import Config

Objective = Literal["pretrain", "sft", "dpo"]
# Whole conversations, of which no token sees another: what is learned follows from the control tokens before.
ROWS = {"packing": "best_fit", "document_masking": True}


class ChatIds(Config):
    """The control tokens of conversations: `[USER]` begins a message of the user, and so on."""

    system: int = Field(ge=0)
    """Id of `[SYSTEM]`."""
    user: int = Field(ge=0)
    """Id of `[USER]`."""
    assistant: int = Field(ge=0)
    """Id of `[ASSISTANT]`."""
    tool: int = Field(ge=0)
    """Id of `[TOOL]`."""
    end: int = Field(ge=0)
    """Id of `[END]`, which ends every message."""

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.model_dump().values()))


class DpoConfig(Config):
    """Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290): the loss of a pair is -log
    sigmoid(beta x margin), where the margin is how much more the model prefers the chosen answer than the
    model that the run started from does. The loss of the chosen answer is added to this loss.
    """

    beta: float = Field(default=0.1, gt=0, le=1e6)
    """How soon a margin, in nats, is enough. Lower lets the model move further from where it started."""
    nll: float = Field(default=0.2, ge=0, le=1e6)
    """Weight of the chosen answer's loss, in nats per token. With 0, both answers become unlikely, and a
    small model forgets the form of answers.
    """


class LoraConfig(Config):
    """Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): the weights are frozen, and two small matrices
    beside each linear layer of the blocks are trained. A checkpoint holds the merged weights in `hf`, and the
    adapter in peft's format in `adapter`.
    """

    rank: int = Field(default=16, ge=1)
    """Rank of the matrices. A higher rank can learn more."""
    alpha: float = Field(default=32, gt=0, le=1e6)
    """The output of the matrices is multiplied by `alpha` / `rank`. Often twice the rank."""
    control_tokens: bool = True
    """Whether the rows of the control tokens in embedding and head are trained, too, for `objective: sft` and
    `dpo`. A pretrained model has never seen these tokens, and their rows are almost identical. If the rows
    are not trained, the model cannot tell `[END]` from other tokens that it has not seen.
    """


class Tuning(Config):
    """What is learned, and by which weights."""

    objective: Objective = "pretrain"
    """What the model learns. `pretrain`: every token. `sft`: in conversations the answers with their `[END]`,
    in other text every token. `dpo`: to prefer the chosen answer of each pair to the rejected answer. For
    `sft` and `dpo`, rows are packed (`packing: best_fit`), conversations do not attend to each other
    (`document_masking: true`), and the tokenizer needs control tokens.
    """
    learn: Literal["all", "last"] = "all"
    """Which answers of a conversation the model learns: all answers, or only the last one. The validation of
    `sft` always covers all answers.
    """
    dpo: DpoConfig = DpoConfig()
    """The loss of preferences, for `objective: dpo`."""
    lora: LoraConfig | None = None
    """Trains small matrices beside the weights of `pretrained`, which needs little memory for gradients. When
    not set, the weights themselves are trained.
    """

    @property
    def learns_tokens(self) -> bool:
        """Whether tokens that the weights of `pretrained` lack are learned."""
        return self.lora is None or (self.objective != "pretrain" and self.lora.control_tokens)


def with_rows(values: Any) -> Any:
    """The settings of a `training` section, with ROWS where its `objective` needs and does not set them."""
    tunes = isinstance(values, dict) and values.get("objective", "pretrain") != "pretrain"
    return ROWS | values if tunes else values
