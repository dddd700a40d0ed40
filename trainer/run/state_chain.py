"""Names the states of a run by what decided them, and by nothing that comes later.

The name of the state after `s` steps is a hash over the first weights, the settings that hold throughout, and
for each of the `s` steps what it reads and by which factor it learns. So two runs whose plans agree up to a
step have states of the same names up to there, whatever their lengths, later stages or later data.
"""

import hashlib
import json
import struct
from typing import Any

import torch

from trainer.config.stages import CurriculumStage
from trainer.data.order import mixture_turns
from trainer.parallel.world import World
from trainer.run.resolve import Plan
from trainer.system.machine import machine

# Settings of the whole run that the steps say one by one.
TOLD_BY_STEPS = ("max_tokens", "global_batch_tokens", "schedule", "stages")


class StateChain:
    """The names of a run's states. Costs about a microsecond a step, once."""

    def __init__(self, plan: Plan) -> None:
        training, data = plan.identity["training"], plan.identity["data"]
        self._stages = plan.training.curriculum.stages
        self._corpora: dict[str, dict[str, Any]] = data["corpora"]
        self._repeats = plan.data.order.repeats
        lasting = {
            "training": {name: value for name, value in training.items() if name not in TOLD_BY_STEPS},
            "data": {name: value for name, value in data.items() if name not in ("order", "corpora")},
        }
        self._first = hashlib.sha256(_canonical(lasting))
        self._hash, self._step = self._first.copy(), 0

    def at(self, step: int) -> str:
        """The name of the state after `step` steps, 64 hex digits."""
        if step < self._step:
            self._hash, self._step = self._first.copy(), 0
        for stage in self._stages:
            last = min(step, stage.first_step + stage.steps)
            if self._step >= last:
                continue
            if self._step == stage.first_step:
                self._hash.update(_canonical(self._described(stage)))
            steps = range(self._step - stage.first_step + 1, last - stage.first_step + 1)
            ends = (stage.first_token + number * stage.global_batch_tokens for number in steps)
            self._hash.update(struct.pack(f"<{len(steps)}d", *map(stage.lr_factor, ends)))
            self._step = last
        return self._hash.hexdigest()

    def _described(self, stage: CurriculumStage) -> dict[str, Any]:
        """What all steps of a stage read, and its first learning rate, at which fp16 may wait."""
        weights = stage.weights or {name: one["weight"] for name, one in self._corpora.items()}
        shares = tuple(weights.get(name, 0.0) for name in self._corpora)
        turns = mixture_turns(shares).tolist()
        return {
            "seq_len": stage.seq_len,
            "global_batch_tokens": stage.global_batch_tokens,
            "first": stage.lr_factor(stage.schedule_begin + 1),
            # A corpus that the stage does not read decides nothing.
            "corpora": [
                [name, one["shards"], count, repeats]
                for (name, one), count, repeats in zip(
                    self._corpora.items(), turns, self._repeats, strict=True
                )
                if count
            ],
        }


def rounding(plan: Plan, world: World) -> dict[str, Any]:
    """What decides the last bits of a state on a CPU. On a GPU nothing promises them, and the dictionary
    holds the kind of device only.
    """
    if world.device.type != "cpu":
        return {"device": world.device.type}
    facts = machine(torch.get_num_threads(), world.device.type)
    del facts["processor"]  # a name for people
    return {
        **facts,
        "torch": torch.__version__,
        "attention": plan.attention,
        "compiled": plan.compiled,
        "micro_batch_size": plan.training.micro_batch_size,
        "activation_checkpointing": plan.training.activation_checkpointing,
        "processes": world.size,
        "parallel": plan.training.parallel.model_dump(mode="json"),
    }


def held_out(plan: Plan) -> str:
    """Names what validations read, so that those of another run can be compared with this run's."""
    contents = {name: one["shards"] for name, one in plan.identity["data"]["corpora"].items()}
    wanted = plan.training.evaluation.max_tokens
    return hashlib.sha256(_canonical({"corpora": contents, "max_tokens": wanted})).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
