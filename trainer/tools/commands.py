"""The commands of `python -m trainer` beside training. What is heavy is imported once arguments are read."""

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import get_args

from trainer.config import SamplesConfig, TrainingConfig, numbers
from trainer.config.run import load_run_config, load_to_train, run_config_of, samples_of
from trainer.system import terminal
from trainer.system.errors import NOT_PASSED, TrainerError
from trainer.system.run_history import MODEL_NAMES
from trainer.system.signals import loading
from trainer.tools.drawing import add_drawing, drawn

PRECISIONS = get_args(TrainingConfig.model_fields["precision"].annotation)


def _parser(command: str, about: str) -> argparse.ArgumentParser:
    """A parser for a command that asks a model."""
    parser = argparse.ArgumentParser(prog=f"python -m trainer {command}", description=about)
    parser.add_argument("--model", metavar="NAME", required=True, help=MODEL_NAMES)
    return parser


def _evaluate(arguments: list[str]) -> int:
    parser = _parser("evaluate", "Print validation losses of a checkpoint, not of an export, as JSON.")
    add = parser.add_argument
    add("--config", type=Path, help="the settings; default: config.yaml of the checkpoint's run directory")
    example = '{"prompts": ["Once upon a time"], "temperature": 0.7}'
    add("--samples", metavar="JSON", help=f"also print samples, for example {example}")
    options = parser.parse_args(arguments)
    samples = samples_of(options.samples) if options.samples else None
    with loading():
        from trainer.tools.find_model import checkpoint_named

    checkpoint = checkpoint_named(options.model)
    config = load_run_config(options.config) if options.config else run_config_of(checkpoint)
    with terminal.doing(f"evaluating {checkpoint}"):
        from trainer.run.evaluation.validation import evaluate_checkpoint

        found = evaluate_checkpoint(checkpoint, config, samples)
    print(json.dumps(found))
    return 0


def _benchmark(arguments: list[str]) -> int:
    about = "Print a model's scores on benchmarks as JSON, one line for each. "
    parser = _parser("benchmark", f"{about}`python -m pipeline benchmark` knows some by name.")
    add = parser.add_argument
    line = '{"context": "The sky is", "continuations": [" blue", " green"], "gold": 0}'
    add("files", nargs="+", type=Path, metavar="FILE.jsonl", help=f"items, one on each line: {line}")
    add("--precision", choices=PRECISIONS, default="auto", help="default: %(default)s")
    add("--output", type=Path, metavar="DIR", help="also write each score and log-likelihood into DIR")
    add("--chat", action="store_true", help="ask each question as a turn of a conversation")
    options = parser.parse_args(arguments)
    with loading():
        from trainer.run.evaluation.benchmarks import benchmark
        from trainer.tools.find_model import model_named

    directory = model_named(options.model)
    found = benchmark(directory, options.files, options.precision, options.output, options.chat)
    for name, scores in terminal.awaited(f"{options.model} answers", found):
        print(json.dumps({"benchmark": name, **scores}), flush=True)
    return 0


def _predict(arguments: list[str]) -> int:
    about = "Print the mean loss of each row of token ids, and how many tokens after the prompt are recited."
    parser = _parser("predict", about)
    add = parser.add_argument
    add("--prompt", metavar="N", type=int, default=1, help="prompt tokens of each row; default: %(default)s")
    add("rows", type=Path, metavar="ROWS.npy", help="token ids, int64 [rows, length]")
    options = parser.parse_args(arguments)
    with loading():
        import numpy as np

        from trainer.run.evaluation.predictions import predictions
        from trainer.tools.find_model import checkpoint_named

    checkpoint = checkpoint_named(options.model)
    config = run_config_of(checkpoint)
    try:
        with options.rows.open("rb") as file:  # np.load takes what is no .npy for pickle
            rows = np.lib.format.read_array(file)
        if rows.ndim != 2 or rows.dtype != np.int64 or not 0 < options.prompt < rows.shape[1]:
            raise ValueError("they are int64 [rows, length], of more tokens than --prompt")
    except (ValueError, EOFError) as error:
        raise TrainerError(f"{options.rows}: cannot be read as rows of token ids: {error}") from error
    predicted = predictions(checkpoint, config, rows, options.prompt)
    for found in terminal.awaited("predicting", predicted):
        print(json.dumps(found), flush=True)
    return 0


def _generate(arguments: list[str]) -> int:
    parser = _parser("generate", "Print prompts, each with a model's continuation.")
    said = "a text to continue; may be given several times"
    parser.add_argument("--prompt", metavar="TEXT", required=True, action="append", help=said)
    add_drawing(parser, SamplesConfig().temperature)
    parser.add_argument("--json", action="store_true", help="print prompt and text as JSON, one line each")
    options = parser.parse_args(arguments)
    samples = drawn(options, options.prompt)
    with loading():
        from trainer.run.evaluation.generate import complete_with_model_of
        from trainer.tools.find_model import model_named

    directory = model_named(options.model)
    with terminal.doing("writing"):
        completions = complete_with_model_of(directory, samples, options.seed)
    for one in completions:
        print(json.dumps(one) if options.json else one["text"])
    return 0


def _check(arguments: list[str]) -> int:
    about = "Check a model, with `transformers` too where installed, and print the result as JSON."
    options = _parser("check", about).parse_args(arguments)
    with loading():
        from trainer.hf import check_with_transformers
        from trainer.tools.find_model import model_named

    directory = model_named(options.model)
    with terminal.doing(f"checking {directory}"):
        result = check_with_transformers(directory)
    print(json.dumps({**asdict(result), "passed": result.passed}))
    return 0 if result.passed else NOT_PASSED


def _states(arguments: list[str]) -> int:
    about = "Print the states of other runs from which a run would continue, the newest first, as JSON lines."
    parser = argparse.ArgumentParser(prog="python -m trainer states", description=about)
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml", help="the run; it is not trained")
    options = parser.parse_args(arguments)
    config = load_to_train(options.config)
    if config.runs is None:
        what = "sets no `runs`, the directory that holds those of other runs, so there are no states"
        raise TrainerError(f"{options.config}: {what}")
    with loading():
        from trainer.run.shared_states import sharing

    with terminal.doing("looking for states"):
        found = sharing(config)
    for shared in found:
        print(json.dumps({"checkpoint": str(shared.checkpoint), "step": shared.step}), flush=True)
    return 0


def _merge(arguments: list[str]) -> int:
    about = "Write the mean of the weights of checkpoints as a run of its own, and print its scores as JSON."
    parser = argparse.ArgumentParser(prog="python -m trainer merge", description=about)
    add = parser.add_argument
    add("models", nargs="+", metavar="NAME", help=f"two checkpoints or more, or a run: {MODEL_NAMES}")
    add("--last", type=int, metavar="N", help="of one run, its newest N checkpoints")
    add("--weights", metavar="W,W", help="a weight for each checkpoint; default: equal ones")
    add("--output", type=Path, required=True, metavar="DIR", help="the directory of the run; must not exist")
    add("--name", default="", help="the name of the mean; default: the name of DIR")
    options = parser.parse_args(arguments)
    weights = numbers(options.weights) if options.weights else None
    if options.output.exists():
        raise TrainerError(f"--output {options.output}: exists already: name another directory")
    with loading():
        from trainer.tools.find_model import checkpoint_named, last_checkpoints
        from trainer.tools.merge import merge

    if options.last is None:
        checkpoints = [checkpoint_named(name) for name in options.models]
    else:
        checkpoints = last_checkpoints(options.models, options.last)
    with terminal.doing(f"merging {len(checkpoints)} checkpoints"):
        found = merge(checkpoints, weights, options.output.absolute(), options.name)
    print(json.dumps(found))
    return 0


def _answer(arguments: list[str]) -> int:
    parser = _parser("answer", "Print a model's answers as JSON, one line for each.")
    about = '{"messages": [...]} in each line, the user\'s last'
    parser.add_argument("file", type=Path, metavar="FILE.jsonl", help=about)
    add_drawing(parser, temperature=0.0)
    options = parser.parse_args(arguments)
    samples = drawn(options)
    with loading():
        from trainer.run.evaluation.answer import answered
        from trainer.tools.find_model import model_named

    directory, asked, unended = model_named(options.model), 0, 0
    for answer in terminal.awaited("answering", answered(directory, options.file, samples, options.seed)):
        print(json.dumps(answer), flush=True)
        asked, unended = asked + 1, unended + ("unended" in answer)
    if unended:
        limit = f"{options.max_new_tokens:,} tokens: --max-new-tokens sets the limit"
        logging.info(f"{unended:,} of {asked:,} answers did not end within {limit}")
    return 0


def _tool(module: str, arguments: list[str]) -> int:
    with loading():
        tool = import_module(module)
    return int(tool.main(arguments))


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "evaluate": _evaluate,
    "benchmark": _benchmark,
    "predict": _predict,
    "generate": _generate,
    "answer": _answer,
    "chat": partial(_tool, "trainer.tools.chat.terminal"),
    "check": _check,
    "merge": _merge,
    "states": _states,
    "plan": partial(_tool, "trainer.tools.planner.cli"),
}
