"""Random personal data of each kind."""

import string
from random import Random


def fill(rng: Random, layout: str) -> str:
    """`layout` with each "#" replaced by a digit and each "*" by one from 2 to 9."""
    return "".join(
        rng.choice("0123456789") if c == "#" else rng.choice("23456789") if c == "*" else c for c in layout
    )


def letters(rng: Random, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(rng.choices(alphabet, k=count))


def email(rng: Random) -> str:
    first, last = (
        rng.choice(["john", "Mary", "wei", "olga", "j"]),
        rng.choice(["smith", "o'neil", "Lee", "kim"]),
    )
    local = rng.choice([f"{first}.{last}", f"{first}{fill(rng, '##')}", f"{last}_{first}", f"{first}+news"])
    host = rng.choice(
        ["corp.com", "mail.uni-bonn.de", "x.co.uk", "Company.ORG", "dept.stanford.edu", "web.io"]
    )
    return f"{local}@{host}"


def ssn(rng: Random, layout: str = "{}-{}-{}") -> str:
    area = rng.choice([n for n in range(100, 900) if n not in (666, 219)])
    return layout.format(area, f"{rng.randrange(1, 100):02d}", f"{rng.randrange(1, 10_000):04d}")


def card(rng: Random) -> str:
    start, size = rng.choice([("4", 16), ("51", 16), ("55", 16), ("2321", 16), ("6011", 16), ("37", 15)])
    body = start + fill(rng, "#" * (size - 1 - len(start)))
    doubled = sum(sum(divmod(int(c) * (2 - i % 2), 10)) for i, c in enumerate(reversed(body)))
    return f"{body}{-doubled % 10}"


def in_groups(number: str, separator: str) -> str:
    widths = (4, 6, 5) if len(number) == 15 else (4,) * 4
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return separator.join(number[start : start + width] for start, width in zip(starts, widths, strict=True))


def iban(rng: Random) -> str:
    country, body = rng.choice(
        [("DE", "#" * 18), ("FR", "#" * 23), ("GB", "WEST" + "#" * 14), ("ES", "#" * 20), ("NO", "#" * 11)]
    )
    body = fill(rng, body)
    value = int("".join(str(int(c, 36)) for c in f"{body}{country}00"))
    return f"{country}{98 - value % 97:02d}{body}"


def in_fours(value: str, separator: str = " ") -> str:
    return separator.join(value[i : i + 4] for i in range(0, len(value), 4))


def ipv4(rng: Random) -> str:
    first = rng.choice([n for n in range(20, 224) if n not in (100, 127, 169, 172, 192, 198, 203)])
    return ".".join(map(str, (first, *(rng.randrange(10, 256) for _ in range(3)))))


def ipv6(rng: Random) -> str:
    groups = [f"2{letters(rng, 3, '0123456789abcdef')}"] + [
        f"{rng.randrange(4096, 65536):x}" for _ in range(7)
    ]
    groups[0] = rng.choice(["2606", "2a00", "2620", "2400"])
    return rng.choice([":".join(groups), f"{':'.join(groups[:3])}::{groups[3]}"])


def jwt(rng: Random) -> str:
    return f"eyJhbGciOiJIUzI1NiJ9.eyJ{letters(rng, 30)}.{letters(rng, 43)}"
