"""How fast many texts are written: ours one at a time, ours in batches, and `transformers` in batches.

python performance/answers.py MODEL [--prompts 100] [--tokens 48] [--repeats 3] [--record]

MODEL is an exported model that `transformers` reads. The prompts are pieces of the sample corpora, of 4 to
100 tokens, and the likeliest token is taken each time. The three take turns. Speeds are tokens written in a
second of the clock and in one of processor time, medians. `ratio` is the speed over that of one at a time.
`same` counts the texts that equal those of one at a time.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness.sidebyside import record, texts
from transformers import AutoModelForCausalLM

from trainer.config import SamplesConfig
from trainer.hf import load_model, read_config
from trainer.hf.tokenizer import load_tokenizer
from trainer.run.evaluation.generate import ROWS, Prompt, generate

CORPORA = ("techdocs", "enwiki", "books")
SHORTEST, LONGEST = 4, 100
Texts = list[list[int]]


def prompts(model: Path, count: int) -> Texts:
    tokenizer, begin, drawn = load_tokenizer(model), read_config(model)["bos_token_id"], random.Random(0)
    found: Texts = []
    for text in texts(CORPORA, 100):
        ids = tokenizer.encode(text[:20_000], add_special_tokens=False).ids
        at, size = drawn.randrange(max(1, len(ids) - LONGEST)), drawn.randrange(SHORTEST, LONGEST)
        found.append([begin, *ids[at : at + size]])
        if len(found) == count:
            break
    return found


def contenders(model: Path, asked: Texts, tokens: int) -> dict[str, Callable[[], Texts]]:
    ours, end = load_model(model, torch.device("cpu")), read_config(model)["eos_token_id"]
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    samples = SamplesConfig(max_new_tokens=tokens, temperature=0)

    def in_batches(wanted: Texts) -> Texts:
        found = dict(generate(ours, [Prompt(one) for one in wanted], samples, {end}))
        return [found[number].tokens for number in range(len(wanted))]

    def of_transformers() -> Texts:
        found: dict[int, list[int]] = {}
        order = sorted(range(len(asked)), key=lambda number: len(asked[number]))
        for batch in (order[at : at + ROWS] for at in range(0, len(order), ROWS)):
            width = max(len(asked[number]) for number in batch)
            padding = [width - len(asked[number]) for number in batch]
            rows = [[0] * pad + asked[number] for pad, number in zip(padding, batch, strict=True)]
            mask = [[0] * pad + [1] * (width - pad) for pad in padding]
            written = theirs.generate(
                torch.tensor(rows),
                attention_mask=torch.tensor(mask),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=end,
                pad_token_id=end,
            )
            for number, row in zip(batch, written[:, width:].tolist(), strict=True):
                found[number] = row[: row.index(end)] if end in row else row
        return [found[number] for number in range(len(asked))]

    return {
        "one at a time": lambda: [in_batches([one])[0] for one in asked],
        "in batches": lambda: in_batches(asked),
        "transformers in batches": of_transformers,
    }


def measured(named: dict[str, Callable[[], Texts]], repeats: int) -> dict[str, Any]:
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
    written: dict[str, Texts] = {}
    for run in range(repeats + 1):  # the first one to warm up
        for name, call in named.items():
            clock, processor = time.perf_counter(), time.process_time()
            written[name] = call()
            took = time.perf_counter() - clock, time.process_time() - processor
            if run:
                count = sum(map(len, written[name]))
                speeds[name].append((count / took[0], count / took[1]))
    medians = {
        name: [statistics.median(one) for one in zip(*found, strict=True)] for name, found in speeds.items()
    }
    first = next(iter(medians))
    return {
        name: {
            "tokens_per_s": round(clock),
            "ratio": round(clock / medians[first][0], 2),
            "tokens_per_processor_s": round(processor),
            "ratio_by_processor": round(processor / medians[first][1], 2),
            "same": sum(a == b for a, b in zip(written[name], written[first], strict=True)),
        }
        for name, (clock, processor) in medians.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL")
    add("--prompts", type=int, default=100)
    add("--tokens", type=int, default=48)
    add("--repeats", type=int, default=3)
    add("--record", action="store_true", help="keep the figures")
    chosen = parser.parse_args()
    asked = prompts(chosen.model, chosen.prompts)
    parameters = sum(one.numel() for one in load_model(chosen.model, torch.device("cpu")).parameters())
    shape = {"parameters": parameters, "prompts": len(asked), "tokens": chosen.tokens}
    load = round(os.getloadavg()[0], 1)
    found = measured(contenders(chosen.model, asked, chosen.tokens), chosen.repeats)
    report = {**shape, "load": [load, round(os.getloadavg()[0], 1)], **found}
    if chosen.record:
        record("answers", report, ["torch", "transformers"])
    else:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
