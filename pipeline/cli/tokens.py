"""train-tokenizer and tokenize on plain files."""

import argparse
from pathlib import Path

from pipeline.cli.plain import UsageError, bar, report

# As in cli.plain, what takes long to import waits until a command needs it.


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    train = commands.add_parser(
        "train-tokenizer",
        help="a byte-level BPE tokenizer: OUT/tokenizer.json and what AutoTokenizer needs beside it",
    )
    train.add_argument(
        "--vocab-size", metavar="N", type=int, default=8192, help="entries, special tokens included"
    )
    train.add_argument("--pattern", choices=("llama3", "gpt2"), default="llama3", help="where merges stop")
    train.add_argument("--single-digits", action="store_true", help="split numbers into digits")
    train.add_argument(
        "--sample-bytes",
        metavar="N",
        type=int,
        default=1_000_000_000,
        help="read no more text than this, in the order of the files",
    )
    train.set_defaults(run=_train)
    tokenize = commands.add_parser(
        "tokenize",
        help="token shards as Megatron reads them: OUT/train/*.bin, *.idx, with the tokenizer beside them",
    )
    tokenize.add_argument(
        "--tokenizer",
        metavar="T",
        required=True,
        help="a tokenizer.json, a directory that holds one, or a name on the hub",
    )
    tokenize.add_argument(
        "--begin-of-text",
        metavar="TOKEN",
        help="begins each document, if the tokenizer names no bos_token or another is wanted",
    )
    tokenize.add_argument(
        "--end-of-text",
        metavar="TOKEN",
        help="ends each document, if the tokenizer names no eos_token or another is wanted",
    )
    tokenize.add_argument(
        "--validation-fraction",
        metavar="F",
        type=float,
        default=0.0,
        help="hold out this share of the documents, by their ids",
    )
    tokenize.add_argument(
        "--shard-tokens",
        metavar="N",
        type=int,
        default=100_000_000,
        help="tokens per shard at most; documents are not cut",
    )
    tokenize.set_defaults(run=_tokenize)
    for command in (train, tokenize):
        command.add_argument(
            "paths",
            metavar="IN",
            nargs="+",
            help="jsonl, parquet, csv, txt, md, plain or .gz, .zst; paths or globs",
        )
        command.add_argument(
            "-o", "--out", metavar="OUT", type=Path, required=True, help="the directory to make"
        )


def _train(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from pipeline.stages.tokenizer import TokenizerParams
    from pipeline.steps.files import tokens

    settings = {
        name: getattr(options, name) for name in ("vocab_size", "pattern", "single_digits", "sample_bytes")
    }
    try:
        params = TokenizerParams.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"--{str(first['loc'][0]).replace('_', '-')} {first['input']}: {first['msg']}"
        ) from None
    with bar("reading") as progress:
        outcome = tokens.train_tokenizer(options.paths, options.out, params, progress)
    report([("entries", params.vocab_size), ("documents", outcome.counts["documents"])], outcome)


def _tokenize(options: argparse.Namespace) -> None:
    from pipeline.stages.tokenizer import ExistingTokenizer
    from pipeline.steps.files import tokens

    if not 0 <= options.validation_fraction < 1:
        raise UsageError(
            f"--validation-fraction {options.validation_fraction}: a share is at least 0 and below 1"
        )
    if options.shard_tokens < 1:
        raise UsageError(f"--shard-tokens {options.shard_tokens}: a shard holds at least 1 token")
    tokenizer = ExistingTokenizer(
        source=options.tokenizer, begin_of_text=options.begin_of_text, end_of_text=options.end_of_text
    )
    with bar("tokenize") as progress:
        outcome = tokens.tokenize(
            options.paths, options.out, tokenizer, options.validation_fraction, options.shard_tokens, progress
        )
    counts = outcome.counts
    splits = ("train", "validation") if counts["validation_documents"] else ("train",)
    rows = [
        (f"{split} {what}", counts[f"{split}_{what}"])
        for split in splits
        for what in ("documents", "tokens", "shards")
    ]
    report([*rows, ("without text", counts["empty_documents"])], outcome)
