"""train-tokenizer: trains a tokenizer on plain files."""

import argparse
from functools import partial

from pipeline.cli.plain_files import add_in_and_out, make_directory, settings_are_options
from pipeline.stages.bpe import TokenizerParams
from pipeline.steps import plain_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(parser)
    parser.add_argument(
        "--vocab-size",
        metavar="N",
        type=int,
        default=8192,
        help="entries, special tokens included; default: %(default)s",
    )
    parser.add_argument(
        "--pattern",
        choices=("llama3", "gpt2"),
        default="llama3",
        help="the pattern that splits text into words, which no merge crosses; default: %(default)s",
    )
    parser.add_argument("--single-digits", action="store_true", help="split numbers into digits")
    parser.add_argument(
        "--sample-bytes",
        metavar="N",
        type=int,
        default=1_000_000_000,
        help="train on at most this many bytes of text, in the order of the files; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    names = ("vocab_size", "pattern", "single_digits", "sample_bytes")
    with settings_are_options():
        params = TokenizerParams.model_validate({name: getattr(options, name) for name in names})
    make_directory(
        options,
        partial(plain_files.train_tokenizer, params=params),
        lambda counts: [("entries", params.vocab_size), ("documents", counts["documents"])],
    )
