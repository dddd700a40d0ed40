"""Writes docs/recipe.md from the models."""

from itertools import groupby

from pipeline.recipe.reference import Section, Setting, sections
from pipeline.sources.hub.catalogue import ready_made
from pipeline.stages.quality import PROFILES
from trainer.config.model import SIZES

HEAD = """\
# The recipe

<!-- Written by `python -m pipeline recipe --reference`. Change the descriptions in the models instead. -->

A recipe is one YAML file that describes an experiment from corpora to model. This page lists every setting.

- A setting that is not *required* may be left out; *Default* is then used. `null` is "not set".
- An unknown key is an error that names the nearest one.
- YAML takes `1e-4` for text, which is read as a number all the same, and `1_000_000` for a number.
- `python -m pipeline recipe --explain training.optimizer` prints a section or a setting of this page.
- An editor with a YAML language server completes and checks a recipe whose first line is
  `# yaml-language-server: $schema=PATH`, where PATH leads to
  [recipe.schema.json](../pipeline/recipes/recipe.schema.json).
"""


def page() -> str:
    """The page as Markdown."""
    by_path = [(path, list(group)) for path, group in groupby(sections(), key=lambda one: one.path)]
    return "\n".join([HEAD, *(_chapter(path, variants) for path, variants in by_path)]).rstrip() + "\n"


def _chapter(path: str, variants: list[Section]) -> str:
    level = "##" if "." not in path else "###"
    lines = [f"{level} {path or 'Sections'}", ""]
    listed_before = sorted({one.same_as for one in variants if one.same_as is not None})
    if all(one.same_as is not None for one in variants):
        places = " and ".join(f"[{place}](#{_anchor(place)})" for place in listed_before)
        return "\n".join([*lines, f"The settings are those of {places}.", ""])
    if len(variants) > 1:
        lines += [f"One of: {', '.join(f'*{one.variant}*' for one in variants)}.", ""]
    for one in variants:
        if one.variant:
            lines += [f"{level}# {one.path}, {one.variant}", ""]
        lines += [one.about, "", *_table(one), ""]
    return "\n".join([*lines, *_presets(path)])


def _table(section: Section) -> list[str]:
    rows = sorted(section.settings, key=lambda one: not section.variant.startswith(f"{one.name}: "))
    return ["| Setting | Type | Default | What it does |", "|---|---|---|---|", *map(_row, rows)]


def _row(setting: Setting) -> str:
    name = f"`{setting.name}`"
    if setting.is_section:
        name = f"[{name}](#{_anchor(setting.path)})"
    kind = f"{setting.kind}, {setting.bounds}" if setting.bounds else setting.kind
    default = "*required*" if setting.default is None else setting.default
    default = default if setting.default is None or setting.is_worded else f"`{default}`"
    cells = [name, kind, default, setting.description]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _presets(path: str) -> list[str]:
    if path == "quality":
        return [f"Profiles: {', '.join(f'`{name}`' for name in PROFILES)}.", ""]
    if path == "corpora":
        names = ", ".join(f"`{one.name}`" for one in ready_made())
        return [f"Ready-made corpora, described by `python -m pipeline corpora`: {names}.", ""]
    if path == "training.model":
        keys = list(next(iter(SIZES.values())))
        return [
            f"| Named size | {' | '.join(f'`{key}`' for key in keys)} |",
            "|---" * (len(keys) + 1) + "|",
            *(
                f"| `{size}` | {' | '.join(str(shape[key]) for key in keys)} |"
                for size, shape in SIZES.items()
            ),
            "",
        ]
    return []


def _anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    return "".join(sign for sign in heading.lower() if sign.isalnum() or sign in "_-")
