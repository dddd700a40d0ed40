"""The names of variants: `hot`, and `hot/sft` for the section `sft` of its `post_training`. The recipe itself
is BASE, and its section is `sft`.
"""

from collections.abc import Container

from pipeline.store.variant_seeds import BASE

OF = "/"  # no variant and no section has it in its name


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
