"""Names the states of a run by what decided them, and by nothing that comes later.

The name of the state after `s` steps is a hash over the first weights, the settings that hold throughout, and
for each of the `s` steps what it reads and by which factor it learns. So two runs whose plans agree up to a
step have states of the same names up to there, whatever their lengths, later stages or later data.
"""

import functools
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch

from trainer.config.stages import CurriculumStage
from trainer.data.order import mixture_turns
from trainer.data.packing.document_stream import DocumentStream, DocumentWindows
from trainer.data.shards import Shard
from trainer.parallel.world import World
from trainer.run.resolve import Plan
from trainer.system.machine import machine

# Settings of the whole run that the steps say one by one.
TOLD_BY_STEPS = ("max_tokens", "global_batch_tokens", "schedule", "stages")


class StateChain:
    """The names of a run's states. Costs about a microsecond a step, once.

    With `packing: documents` a name says which pieces of documents were read, by their content, instead of
    what the corpora hold.
    """

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
        self._order, self._curriculum = plan.data.order, plan.training.curriculum
        self._pieces = {
            name: _Pieces(windows.stream)
            for name, windows in zip(self._order.names, plan.data.windows, strict=True)
            if isinstance(windows, DocumentWindows)
        }

    def at(self, step: int) -> str:
        """The name of the state after `step` steps, 64 hex digits."""
        planned = self._planned(step)
        if not self._pieces:
            return planned
        reached = self._order.reached(self._curriculum.samples(step)).tolist()
        # The last window ends with a target, one token further on.
        read = {
            name: self._pieces[name].up_to(tokens + 1)
            for name, tokens in zip(self._order.names, reached, strict=True)
            if tokens
        }
        return hashlib.sha256(_canonical({"planned": planned, "read": read})).hexdigest()

    def _planned(self, step: int) -> str:
        """A hash over what is known of the first `step` steps without the text."""
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
                [name, None if self._pieces else one["shards"], count, repeats]
                for (name, one), count, repeats in zip(
                    self._corpora.items(), turns, self._repeats, strict=True
                )
                if count
            ],
        }


class _Pieces:
    """A hash over the pieces of the documents of a corpus in the order in which they are read."""

    def __init__(self, stream: DocumentStream) -> None:
        self._stream, self._hash, self._pieces = stream, hashlib.sha256(), 0

    def up_to(self, tokens: int) -> str:
        """The hash over all pieces that the first `tokens` tokens are of."""
        pieces = self._stream.begun(tokens)
        if pieces < self._pieces:
            self._hash, self._pieces = hashlib.sha256(), 0
        for contents in self._stream.contents(self._pieces, pieces):
            self._hash.update(contents)
        self._pieces = pieces
        return self._hash.hexdigest()


def rounding(plan: Plan, world: World) -> dict[str, Any]:
    """What decides a state's last bits on a CPU; on a GPU, which promises none, only the kind of device."""
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
    if plan.training.is_steady:  # another training text then leaves the validations as they are
        contents = {corpus.name: _text_of(tuple(corpus.validation)) for corpus in plan.config.data.corpora}
    wanted = plan.training.evaluation.max_tokens
    return hashlib.sha256(_canonical({"corpora": contents, "max_tokens": wanted})).hexdigest()


@functools.cache
def _text_of(shards: tuple[Path, ...]) -> str:
    """A hash over the documents of shards."""
    digest = hashlib.sha256()
    for shard in map(Shard, shards):
        digest.update(shard.dtype.str.encode())
        digest.update(shard.lengths.tobytes())
        digest.update(shard.tokens.data)  # not copied: held-out text may be large
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
