"""init: writes the skeleton of a recipe for text of one's own."""

import argparse
from contextlib import suppress
from pathlib import Path

import yaml

from pipeline.cli.opening import UsageError
from pipeline.recipe.recipe import named_like
from pipeline.recipe.reference import SCHEMA
from trainer.system.wording import shell_word

SKELETON = Path(__file__).with_name("skeleton.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=Path,
        default=Path("recipe.yaml"),
        help="the file to write; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    path = options.path.absolute()
    write(path, path.stem)
    print(f"{path} is written. Name your corpora in it, then:")
    print(f"  export GROUNDWORK_RECIPE={shell_word(path)}")
    print("  dagster job execute -j pretrain")


def write(path: Path, called: str) -> None:
    """Writes the skeleton with a name like that. Raises UsageError."""
    text = SKELETON.read_text(encoding="utf-8")
    name = yaml.safe_dump({"name": named_like(called)})  # in quotes where it would be a number or a date
    text = text.replace("name: NAME\n", name).replace("SCHEMA", str(SCHEMA))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file, or move that one away") from None
    except OSError as error:
        with suppress(OSError):
            path.unlink()  # half a recipe would be in the way of the next one
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
