"""A transform that removes the lines which a site repeats on every page: menus, cookie notices, footers."""

import re
from collections.abc import Sequence

from pipeline.plugins import Document, document_transform

MENU = re.compile(r"(?:[^|•\n]{1,30}\s*[|•]\s*){2,}[^|•\n]{1,30}")


@document_transform
def strip_boilerplate(document: Document, phrases: Sequence[str] = (), menus: bool = True) -> str:
    """The text without lines that hold one of `phrases`, and without menus (`Home | News | Contact`)."""
    lines = [
        line
        for line in document.text.splitlines()
        if not any(phrase in line for phrase in phrases) and not (menus and MENU.fullmatch(line.strip()))
    ]
    return "\n".join(lines).strip()
