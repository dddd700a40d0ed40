"""Text for a terminal."""


def printable(text: str) -> str:
    """Indented, line by line. Crawled text may hold what a terminal takes for commands."""
    lines = (
        "".join(character if character.isprintable() else "�" for character in line.expandtabs())
        for line in text.splitlines()
    )
    return "\n".join(f"    {line}" for line in lines)
