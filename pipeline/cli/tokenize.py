"""tokenize: makes token shards from plain files."""

import argparse
from collections.abc import Mapping
from functools import partial

from pipeline.cli.opening import UsageError
from pipeline.cli.plain_files import Rows, add_in_and_out, make_directory, settings_are_options
from pipeline.recipe.sections import ShardParams
from pipeline.stages.bpe import ExistingTokenizer
from pipeline.steps import plain_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        required=True,
        help="a tokenizer.json, a directory that contains one, or the name of a repository on the hub",
    )
    for option, verb, key in (("--begin-of-text", "begins", "bos"), ("--end-of-text", "ends", "eos")):
        parser.add_argument(
            option,
            metavar="TOKEN",
            help=f"the token that {verb} each document; default: the tokenizer's {key}_token",
        )
    parser.add_argument(
        "--validation-fraction",
        metavar="F",
        type=float,
        default=0.0,
        help="hold out this share of the documents, chosen by their ids; default: %(default)s",
    )
    parser.add_argument(
        "--shard-tokens",
        metavar="N",
        type=int,
        default=100_000_000,
        help="tokens per shard at most; a longer document gets its own shard; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    held_out = options.validation_fraction
    if not 0 <= held_out < 1:
        raise UsageError(f"--validation-fraction {held_out}: must be at least 0 and below 1")
    with settings_are_options(source="tokenizer"):
        params = ShardParams(shard_tokens=options.shard_tokens)
        tokenizer = ExistingTokenizer(
            source=options.tokenizer, begin_of_text=options.begin_of_text, end_of_text=options.end_of_text
        )
    # Without validation: of files, unlike in a recipe, nothing or most may be held out.
    params = params.model_copy(update={"validation_fraction": held_out})
    make_directory(options, partial(plain_files.tokenize, tokenizer=tokenizer, params=params), _rows)


def _rows(counts: Mapping[str, int]) -> Rows:
    splits = ("train", "validation") if counts["validation_documents"] else ("train",)
    found = [
        (f"{split} {what}", counts[f"{split}_{what}"])
        for split in splits
        for what in ("documents", "tokens", "shards")
    ]
    return [*found, ("without text", counts["empty_documents"])]
