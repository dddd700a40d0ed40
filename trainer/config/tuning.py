"""Tuning after pretraining: on the answers of conversations, or on preferences between two answers."""

from typing import Any, Literal

from pydantic import Field

from trainer.config.base import Config

Objective = Literal["pretrain", "sft", "dpo"]
# Whole conversations, of which no token sees another: what is learnt follows from the control tokens before.
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
    """Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290): the loss of a pair is
    -log sigmoid(beta x margin), where the margin is how much more the model prefers the chosen answer than
    the model that the run started from does. And beside it, the loss of the chosen answer.
    """

    beta: float = Field(default=0.1, gt=0)
    """How soon a margin, in nats, is enough. Lower lets the model move further from where it started."""
    nll: float = Field(default=0.2, ge=0)
    """Weight of the chosen answer's loss, in nats per token. Without it both answers become unlikely, and a
    small model forgets the form of answers.
    """


class LoraConfig(Config):
    """Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): the weights stay, and beside each linear layer
    of the blocks two small matrices are trained. A checkpoint holds the merged weights in `hf`, and in
    `adapter` what peft opens.
    """

    rank: int = Field(default=16, ge=1)
    """Rows of the matrices. More learn more."""
    alpha: float = Field(default=32, gt=0)
    """What they add is multiplied by `alpha` / `rank`. Often twice the rank."""
    control_tokens: bool = True
    """Whether the rows of the control tokens in embedding and head are trained, too, for `objective: sft` and
    `dpo`. A pretrained model has never seen them, and their rows are much alike: left so, it cannot tell
    `[END]` from other tokens that it has not seen.
    """


class Tuning(Config):
    """What is learnt, and by which weights."""

    objective: Objective = "pretrain"
    """What is learnt. `pretrain`: every token. `sft`: of conversations the answers with their `[END]`, of
    other text every token. `dpo`: to prefer the chosen answer of each pair to the rejected one. For `sft` and
    `dpo` rows are packed (`packing: best_fit`), conversations do not see each other (`document_masking:
    true`), and the tokenizer needs control tokens.
    """
    learn: Literal["all", "last"] = "all"
    """Which answers of a conversation are learnt: all or the last one. The validation of `sft` reads all of
    them in any case.
    """
    dpo: DpoConfig = DpoConfig()
    """The loss of preferences, for `objective: dpo`."""
    lora: LoraConfig | None = None
    """Trains small matrices beside the weights of `pretrained`, which takes the memory of few gradients. When
    not set, the weights themselves.
    """


def with_rows(values: Any) -> Any:
    """The settings of a `training` section, with ROWS where its `objective` needs and does not set them."""
    tunes = isinstance(values, dict) and values.get("objective", "pretrain") != "pretrain"
    return ROWS | values if tunes else values
