"""recipe: explains a setting or a section of a recipe."""

import argparse
import textwrap
from collections.abc import Iterator

from pipeline.recipe.reference import Section, Setting, found_settings, sections

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--explain",
        metavar="SETTING",
        nargs="?",
        help="a setting or a section, such as training.optimizer; default: list the sections",
    )


def run(options: argparse.Namespace) -> None:
    print("\n".join(explained(options.explain or "")))


def explained(path: str) -> Iterator[str]:
    """Explains the setting or section at a dotted path; lists all sections for "". Raises RecipeError."""
    if not path:
        yield from _contents()
        return
    settings = found_settings(path)
    path = settings[0].path
    for setting in settings if not settings[0].is_section else settings[:1]:
        yield from _explained(setting, setting.path, "")
    for section in sections():
        if section.path == path:
            yield from _section(section)


def _contents() -> Iterator[str]:
    yield "The settings of a recipe; `python -m pipeline recipe --explain SETTING` explains each of them."
    for section in (one for one in sections() if one.same_as is None):
        for setting in section.settings:
            if section.path == "" or setting.is_section:
                yield f"  {setting.path:<30} {setting.description.partition('. ')[0].rstrip('.')}"


def _section(section: Section) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(
        f"[{section.variant}] {section.about}" if section.variant else section.about, WIDTH
    )
    for setting in section.settings:
        yield from _explained(setting, setting.name, "  ")


def _explained(setting: Setting, name: str, indent: str) -> Iterator[str]:
    default = "required" if setting.default is None else f"default: {setting.default}"
    facts = "; ".join(fact for fact in (setting.kind, setting.bounds, default) if fact)
    yield f"{indent}{name}: {facts.replace('`', '')}"
    yield from textwrap.wrap(
        setting.description, WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    "
    )
