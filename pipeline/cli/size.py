"""size: what a corpus of a given size takes."""

import argparse
import re

HELP = "Estimate parts, worker hours, storage and memory for an amount of text."
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
DOCUMENT_BYTES = 4_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text", type=_bytes, required=True, metavar="SIZE", help="uncompressed text, such as 10TB or 500GB"
    )
    parser.add_argument(
        "--documents",
        type=_number,
        metavar="N",
        help=f"default: one for each {DOCUMENT_BYTES:,} bytes of text",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="also say how long so many workers take")
    parser.add_argument(
        "--usd-per-worker-hour", type=float, metavar="USD", help="also say what the workers cost"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.reports.size import lines

    documents = options.documents or options.text / DOCUMENT_BYTES
    print(*lines(options.text, documents, options.workers, options.usd_per_worker_hour), sep="\n")


def _bytes(text: str) -> float:
    match = re.fullmatch(r"([\d.]+) ?(\w+)", text)
    units = {name.lower(): factor for name, factor in UNITS.items()}
    if not match or match[2].lower() not in units:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write a number and one of {', '.join(UNITS)}")
    return _number(match[1]) * units[match[2].lower()]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number
