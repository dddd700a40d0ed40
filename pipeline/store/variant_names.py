"""The names of variants: `hot`, `hot.2` for another seed of it, and `hot/sft` for the section `sft` of its
`post_training`. The recipe itself is BASE, and its section is `sft`.
"""

from collections.abc import Collection, Container

BASE = "base"  # the recipe as it is written, beside its variants
OF, MARK = "/", "."  # of a section, and of a seed: no name that is written has them


def tuned(variant: str, section: str) -> str:
    """The name of a section of a variant."""
    return section if variant in ("", BASE) else f"{variant}{OF}{section}"


def split(name: str, sections: Container[str]) -> tuple[str, str]:
    """The variant and the section in a name. The section is empty where the name is that of a variant.
    `sections` are those that the recipe may have.
    """
    variant, _, section = name.rpartition(OF)
    if variant:
        return variant, section
    return (BASE, name) if name in sections else (name, "")


def family(name: str) -> str:
    """The variant of which a variant is another seed."""
    return name.partition(MARK)[0]


def families(names: Collection[str]) -> dict[str, list[str]]:
    """The variants by the one of which they are seeds, in the order of their seeds."""
    return {first: [name for name in names if family(name) == first] for first in map(family, names)}
