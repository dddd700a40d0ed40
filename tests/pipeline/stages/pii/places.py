"""Recall and false spans on places: forms of values and look-alikes in surroundings, generated and seeded.

`python -m tests.pipeline.stages.pii.places` prints a table of both halves: families of place_held_out were
written after the matchers, and the matchers with all others at hand.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import quote, quote_plus

from pipeline.stages.pii import PiiParams, scrub
from tests.pipeline.stages.pii import (
    place_forms,
    place_held_out,
    place_lookalikes,
    place_national,
    place_surroundings,
)
from tests.pipeline.stages.pii.place_copied import COPIED
from tests.pipeline.stages.pii.place_values import fill
from tests.rows import documents

MARK = "\0"
LOOKS = ("alone", "beside words")
AROUND = ("{}", "see {} there", "{}, ok", "a\n{}\nb", "({})", "| {} |", "note: {}.")
_PARTS = {
    False: (place_surroundings, place_forms, place_national, place_lookalikes),
    True: (place_held_out,) * 4,
}


@dataclass(frozen=True)
class Place:
    set: str
    kind: str
    held_out: bool
    text: str
    values: tuple[tuple[int, int], ...]  # first character and character after the last


def lines(block: str) -> list[str]:
    return [line.replace("\\n", "\n").replace("\\\\", "\\") for line in block.split("\n") if line]


def place(kind_set: str, kind: str, held_out: bool, surrounding: str, *written: str) -> Place:
    if surrounding.startswith(("https://", "GET ", "q=")) and MARK not in written[0]:
        encode = quote if len(written[0]) % 2 else quote_plus
        written = tuple(encode(value, safe="") for value in written)
    marked = [value if MARK in value else f"{MARK}{value}{MARK}" for value in written]
    pieces = surrounding.format(*marked).split(MARK)
    starts = [sum(map(len, pieces[:i])) for i in range(1, len(pieces), 2)]
    values = tuple((start, start + len(pieces[2 * i + 1])) for i, start in enumerate(starts))
    return Place(kind_set, kind, held_out, "".join(pieces), values)


def places(per_family: int, seed: int) -> Iterator[Place]:
    """`per_family` places of each family, and three times as many of each form that hides a value."""
    rng = Random(seed)
    for held_out in (False, True):
        words, forms, national, looks = _PARTS[held_out]
        for kind, makes in place_forms.GENERAL.items():
            for surrounding in lines(words.GENERAL):
                for _ in range(per_family):
                    yield place("general", kind, held_out, surrounding, rng.choice(makes)(rng))
        for kind, makes in (forms.HOSTILE | {"secret": list(forms.SECRETS.values())}).items():
            for make in makes:
                for turn in range(3 * per_family):
                    yield place("hostile", kind, held_out, AROUND[turn % len(AROUND)], make(rng))
        for kind, makes in () if held_out else COPIED.items():
            for make in makes:
                for surrounding in lines(words.GENERAL):
                    for _ in range(per_family):
                        yield place("copied", kind, held_out, surrounding, make(rng))
        for language, layouts in national.NATIONAL.items():
            for layout in layouts:
                for surrounding in lines(place_surroundings.LABEL_LINES):
                    for _ in range(per_family):
                        word = rng.choice(national.WORDS[language].split())
                        written = (fill(rng, layout) for _ in range(surrounding.count("{}")))
                        yield place(
                            "national", language, held_out, surrounding.replace("{word}", word), *written
                        )
        for which, block in zip(LOOKS, (words.ALONE, words.BESIDE), strict=True):
            for category, makes in looks.LOOKALIKES.items():
                for make in makes:
                    for surrounding in lines(block):
                        for _ in range(per_family):
                            yield place(which, category, held_out, surrounding, make(rng))


def found(chosen: list[Place]) -> list[set[int]]:
    """The characters of each place that spans cover; fails where a second pass finds anything."""
    once, spans = scrub(documents(*(one.text for one in chosen)), PiiParams())
    assert scrub(once, PiiParams())[1].num_rows == 0
    covered: list[set[int]] = [set() for _ in chosen]
    for span in spans.to_pylist():
        covered[int(span["id"])] |= set(range(span["start"], span["end"]))
    return covered


def is_covered(text: str, covered: set[int], start: int, end: int) -> bool:
    """Whether each letter and digit of the value is."""
    return all(i in covered or not text[i].isalnum() for i in range(start, end))


def scores(chosen: list[Place]) -> dict[tuple[str, str, bool], list[bool]]:
    """By set, kind and half: whether each value is covered; of look-alikes, whether the text is changed."""
    hits = defaultdict(list)
    for one, covered in zip(chosen, found(chosen), strict=True):
        key = one.set, one.kind, one.held_out
        if one.set in LOOKS:
            hits[key].append(bool(covered))
        else:
            hits[key] += [is_covered(one.text, covered, *value) for value in one.values]
    return dict(hits)


def share(
    hits: dict[tuple[str, str, bool], list[bool]], which: str, kind: str | None, held_out: bool
) -> float:
    chosen = [
        hit
        for (one_set, one_kind, half), every in hits.items()
        if one_set == which and half == held_out and kind in (None, one_kind)
        for hit in every
    ]
    return sum(chosen) / len(chosen) if chosen else float("nan")


def main() -> None:
    hits = scores(list(places(int(sys.argv[1]) if len(sys.argv) > 1 else 2, 1)))
    for which in dict.fromkeys(key[0] for key in hits):
        kinds: list[str | None] = [*dict.fromkeys(key[1] for key in hits if key[0] == which), None]
        for kind in kinds:
            count = sum(
                len(every) for key, every in hits.items() if key[0] == which and kind in (None, key[1])
            )
            tuned, held_out = (share(hits, which, kind, half) for half in (False, True))
            print(f"{which:14}{kind or 'all':18}{count:7}   tuned on {tuned:.4f}   held out {held_out:.4f}")


if __name__ == "__main__":
    main()
