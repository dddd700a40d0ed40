"""Makes text safe to print in a terminal."""


def printable(text: str) -> str:
    """The text with each line indented and without control characters, which a terminal would obey."""
    lines = (
        "".join(character if character.isprintable() else "�" for character in line.expandtabs())
        for line in text.splitlines()
    )
    return "\n".join(f"    {line}" for line in lines)
