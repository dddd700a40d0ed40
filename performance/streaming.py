"""How well a model predicts text beyond its context, read token by token as `generate` and `chat` read it.

python performance/streaming.py WITHOUT WITH [--contexts 8] [--streams N] [--record]

WITHOUT and WITH are runs of one recipe that differ in `training.model.attention_sinks`. Their held-out text
is cut into streams of so many contexts, and each token of a stream is predicted

- from the cache of `trainer.model.streaming`, with four first tokens kept and with none;
- in windows of one context, as an evaluation does: from the tokens of its window before it;
- in sliding windows, computed anew: from the newest seven to eight eighths of a context, as many as the cache
  holds;
- from all tokens before it, which is what happens if nobody minds the context.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from harness.sidebyside import ROOT, record

from trainer.config import load_run_config
from trainer.data.shards import Shard
from trainer.hf import load_model
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import Llama
from trainer.model.rope import rotary_tables
from trainer.model.streaming import DROPPED, FIRST, Stream
from trainer.system.run_history import RunHistory

FIGURE = ROOT / ".images/streaming.png"
BIN = 64  # tokens of a point of the figure


def held_out(run: Path, length: int, most: int | None) -> torch.Tensor:
    """Streams of `length` tokens and one more, [streams, length + 1], cut from all held-out text of a run."""
    data = load_run_config(run / "config.yaml").data
    tokens = np.concatenate(
        [Shard(prefix).tokens for corpus in data.corpora for prefix in corpus.validation]
    ).astype(np.int64)
    count = len(tokens) // (length + 1)
    streams = torch.from_numpy(tokens[: count * (length + 1)].reshape(count, length + 1))
    return streams if most is None else streams[:: math.ceil(count / most)]


def text_bytes(tokenizer: Path) -> torch.Tensor:
    """UTF-8 bytes of each token, int64: a character of its name is a byte. Special tokens have none."""
    known = load_tokenizer(tokenizer)
    special = known.get_added_tokens_decoder()
    sizes = torch.zeros(known.get_vocab_size(), dtype=torch.int64)
    for token, number in known.get_vocab().items():
        sizes[number] = 0 if number in special else len(token)
    return sizes


def bits(model: Llama, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-log2 p of each target, of the shape of `targets`, after these states [..., d_model]."""
    logits = model.logits(states).log_softmax(dim=-1)
    return -logits.gather(-1, targets[..., None])[..., 0] / math.log(2)


@torch.no_grad()
def through_the_cache(model: Llama, streams: torch.Tensor, first: int) -> torch.Tensor:
    stream = Stream(model, model.max_length, [first] * len(streams))
    found = [
        bits(model, stream.read(streams[:, at : at + 1]), streams[:, at + 1])
        for at in range(streams.shape[1] - 1)
    ]
    return torch.stack(found, dim=1)


@torch.no_grad()
def in_windows(model: Llama, streams: torch.Tensor, stride: int) -> torch.Tensor:
    """Windows of one context, of which the last `stride` targets are taken, and of the first one all."""
    length, context = streams.shape[1] - 1, model.max_length
    found = []
    for end in range(context, length + 1, stride):
        window = streams[:, end - context : end + 1]
        taken = context if end == context else stride
        states = model(window[:, :-1])[:, -taken:]
        found.append(bits(model, states, window[:, -taken:]))
    return torch.cat(found, dim=1)


@torch.no_grad()
def from_all(model: Llama, streams: torch.Tensor) -> torch.Tensor:
    length, decoder = streams.shape[1] - 1, model.model
    known = decoder.cos, decoder.sin
    decoder.cos, decoder.sin = rotary_tables(model.config, length)
    found = [bits(model, model(row[:, :-1]), row[:, 1:]) for row in streams.split(1)]
    decoder.cos, decoder.sin = known
    return torch.cat(found)


def by_place(found: torch.Tensor, sizes: torch.Tensor, tokens: int) -> list[float]:
    """Bits per byte of all streams, in bins of so many tokens."""
    split = (one.sum(dim=0).double().view(-1, tokens).sum(dim=1) for one in (found, sizes))
    total, of_text = split
    return [round(value, 4) for value in (total / of_text).tolist()]


def measured(run: Path, streams: torch.Tensor, sizes: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of a model by context, and the curves to draw."""
    model = load_model(RunHistory(run).newest_checkpoint / "hf", torch.device("cpu"))
    context = model.max_length
    ways = {
        "cache, 4 first tokens kept": through_the_cache(model, streams, FIRST),
        "cache, no first tokens": through_the_cache(model, streams, 0),
        "windows of one context": in_windows(model, streams, context),
        "sliding windows, computed anew": in_windows(model, streams, context // DROPPED),
        "all tokens": from_all(model, streams),
    }
    places = {name: by_place(found, sizes, context) for name, found in ways.items()}
    totals = {
        name: by_place(found[:, context:], sizes[:, context:], found.shape[1] - context)[0]
        for name, found in ways.items()
    }
    kept = totals["cache, 4 first tokens kept"]
    report = {
        "bits per byte by context": places,
        "beyond the first context": totals,
        "kept against windows of one context": round(kept / totals["windows of one context"], 4),
        "kept against sliding windows": round(kept / totals["sliding windows, computed anew"], 4),
        "worst context against sliding windows": round(
            max(
                ours / theirs
                for ours, theirs in zip(
                    places["cache, 4 first tokens kept"],
                    places["sliding windows, computed anew"],
                    strict=True,
                )
            ),
            4,
        ),
    }
    return report, {name: by_place(found, sizes, BIN) for name, found in ways.items()}


def draw(curves: dict[str, dict[str, list[float]]], context: int) -> None:
    """By place in the stream, how much more than sliding windows, which see as much and are computed anew."""
    plt.rcParams.update({"svg.hashsalt": "groundwork", "font.size": 9})
    figure, axes = plt.subplots(1, len(curves), figsize=(10, 3.6), sharey=True, layout="constrained")
    styles = {
        "cache, no first tokens": ("#d94801", "-"),
        "cache, 4 first tokens kept": ("#2171b5", "-"),
        "windows of one context": ("#969696", ":"),
        "all tokens": ("#9e9ac8", "-"),
    }
    for panel, (model, ways) in zip(axes, curves.items(), strict=True):
        for name, (color, line) in styles.items():
            anew = ways["sliding windows, computed anew"]
            values = [100 * (ours / theirs - 1) for ours, theirs in zip(ways[name], anew, strict=True)]
            places = [(number + 0.5) * BIN for number in range(len(values))]
            panel.plot(places, values, line, color=color, label=name, linewidth=1.4)
        panel.axvline(context, color="#bdbdbd", linewidth=0.8)
        panel.annotate("context", (context, 0.94), xycoords=("data", "axes fraction"), color="#737373")
        panel.set(title=model, xlabel="place in the stream, tokens")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("% more bits than windows computed anew")
    axes[0].legend(frameon=False, fontsize=8, loc="upper center")
    figure.savefig(FIGURE, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("without", type=Path, metavar="WITHOUT")
    parser.add_argument("with_sinks", type=Path, metavar="WITH")
    parser.add_argument("--contexts", type=int, default=8)
    parser.add_argument("--streams", type=int, help="at most; default: all held-out text")
    parser.add_argument("--record", action="store_true", help="keep the figures and the picture")
    chosen = parser.parse_args()
    config = load_run_config(chosen.without / "config.yaml")
    context = config.training.seq_len
    streams = held_out(chosen.without, chosen.contexts * context, chosen.streams)
    sizes = text_bytes(Path(config.data.tokenizer))[streams[:, 1:]]
    report: dict[str, Any] = {"context": context, "streams": list(streams.shape), "bytes": int(sizes.sum())}
    curves = {}
    for name, run in (("without learned sinks", chosen.without), ("with learned sinks", chosen.with_sinks)):
        report[name], curves[name] = measured(run, streams, sizes)
    if chosen.record:
        record("streaming", report | {"by place": {"tokens": BIN, **curves}}, ["torch"])
        draw(curves, context)
    else:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
