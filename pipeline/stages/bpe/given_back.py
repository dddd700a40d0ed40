"""Whether tokens give their text back; otherwise the loss per byte is that of another text."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# What a tokenizer may lose; of those that explain a difference alone, the first. FORM as stores spell it.
CASE, SPACE, FORM, ACCENTS = "case", "white space", "Unicode normalisation", "accents"
UNKNOWN = "unknown words"  # whatever else is not there


@dataclass
class GivenBack:
    """Bytes of texts `checked`, bytes of those that did not come back, and the latter by what they lost."""

    checked: int = 0
    lost: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, texts: Iterable[str], decoded: Iterable[str]) -> None:
        """Compares texts with what their tokens are decoded to. A space at the beginning is no loss."""
        for text, found in zip(texts, decoded, strict=True):
            size = len(text.encode())
            self.checked += size
            if text.removeprefix(" ") != found.removeprefix(" "):
                self.lost += size
                self.kinds.update(dict.fromkeys(lost(text, found), size))

    @property
    def share(self) -> float:
        return self.lost / max(self.checked, 1)

    def __str__(self) -> str:
        kinds = ", ".join(kind for kind, _ in self.kinds.most_common())
        return f"{self.share:.1%} of the text is in documents that it does not give back ({kinds})"


def lost(text: str, decoded: str) -> list[str]:
    """What a text lost: the fewest of the kinds that make both the same, else UNKNOWN."""
    kinds = list(_WITHOUT)
    if _without(kinds, text) != _without(kinds, decoded):
        return [UNKNOWN]
    for kind in reversed(_WITHOUT):
        fewer = [one for one in kinds if one != kind]
        if _without(fewer, text) == _without(fewer, decoded):
            kinds = fewer
    return kinds


def _without(kinds: Iterable[str], text: str) -> str:
    for kind in kinds:
        text = _WITHOUT[kind](text)
    return text


def _unaccented(text: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


_WITHOUT = {
    FORM: lambda text: unicodedata.normalize("NFKC", text),
    ACCENTS: _unaccented,
    CASE: str.casefold,
    SPACE: lambda text: "".join(text.split()),
}
