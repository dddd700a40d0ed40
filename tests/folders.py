"""Twenty folders of text as people have them, to start from: `python -m tests.folders DIR` makes them.

They are made of what is installed here, Python's documentation, licenses and programs, and of the sample
corpora where there are any (`tests/corpora.py`).
"""

import argparse
import csv
import io
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import pipeline.start
from tests.corpora import CORPORA

ENGLISH = [text for text in topics.values() if len(text) > 500]
CHINESE = (
    "春天到了。花园里的花都开了。孩子们在草地上跑来跑去。他们的笑声传得很远。老人坐在树下看书。喝着热茶。" * 5
)
GERMAN = "Die Straße führt über die Brücke, und für die Häuser am Ufer gibt es einen schönen Weg hinüber. "


def books(folder: Path) -> None:
    for number in range(3):
        (folder / f"book {number}.txt").write_text("\n\n".join(ENGLISH[number::3]) * 3)


def mail(folder: Path) -> None:
    for number, text in enumerate(ENGLISH[:40]):
        head = f"From: a{number}@example.org\nTo: list@example.org\nSubject: number {number}\n\n"
        (folder / f"{number}.eml").write_text(head + text)


def odd_csv(folder: Path) -> None:
    rows = [f'{n};"{text[:900]}";2020' for n, text in enumerate(t.replace('"', "'") for t in ENGLISH[:60])]
    (folder / "export.csv").write_text("\n".join(["Nr;Beschreibung;Jahr", *rows]))


def code(folder: Path) -> None:
    for path in sorted(Path(pipeline.start.__file__).parent.glob("*.py")):
        (folder / path.name).write_text(path.read_text())


def two_languages(folder: Path) -> None:
    rows = [{"body": text} for text in ENGLISH[:30]] + [{"body": f"{n}{CHINESE}"} for n in range(60)]
    (folder / "all.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def chats(folder: Path) -> None:
    said = [
        {"messages": [{"role": "user", "content": f"Why {n}?"}, {"role": "assistant", "content": text[:800]}]}
        for n, text in enumerate(ENGLISH[:20])
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    books(folder)


def nested_markdown(folder: Path) -> None:
    for number, text in enumerate(ENGLISH):
        place = folder / f"part {number % 3}" / "chapter [1]"
        place.mkdir(parents=True, exist_ok=True)
        (place / "same name.md" if number < 3 else place / f"{number}.md").write_text(f"# {number}\n\n{text}")


def html_in_parquet(folder: Path) -> None:
    pages = [f"<html><body><div><p>{text}</p><p>end</p></div></body></html>" for text in ENGLISH[:50]]
    pq.write_table(pa.table({"url": ["https://example.org"] * 50, "html": pages}), folder / "pages.parquet")


def little(folder: Path) -> None:
    (folder / "notes.txt").write_text("\n\n".join(ENGLISH)[:200_000])


def huge(folder: Path) -> None:
    little(folder)
    with (folder / "huge.txt").open("wb") as file:
        file.write("\n\n".join(ENGLISH).encode())
        file.truncate(10 << 30)


def odd_names_and_encodings(folder: Path) -> None:
    (folder / "latin [1].txt").write_bytes((GERMAN * 200).encode("latin-1"))
    (folder / "wide.txt").write_bytes((GERMAN * 200).encode("utf-16"))
    (folder / "a, b: c #d.txt").write_text(GERMAN * 200)
    (folder / "-\udcff.txt").write_text(GERMAN * 150)


def formats_by_folder(folder: Path) -> None:
    for name, make in {"novels": books, "posts": mail, "tables": odd_csv}.items():
        (folder / name).mkdir()
        make(folder / name)


def rubbish(folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(bytes(range(256)) * 40)
    (folder / "broken.jsonl").write_bytes(b"\x00\x01{{{{" * 300)
    (folder / "archive.parquet").write_bytes(b"PAR1 not really")


def empty(folder: Path) -> None:
    (folder / "inside").mkdir()


def sampled(name: str, most: int) -> Iterator[str]:
    """Documents of a sample corpus or, where there is none, of Python's documentation."""
    if not CORPORA.is_dir():
        yield from ENGLISH
        return
    with zstandard.open(CORPORA / f"{name}.jsonl.zst") as file:
        for line in io.BufferedReader(file):
            text = json.loads(line)["text"]
            yield text
            most -= len(text)
            if most < 0:
                return


def novels(folder: Path) -> None:
    for number, text in enumerate(sampled("books", 8_000_000)):
        (folder / f"Book {number}.txt").write_text(text, encoding="utf-8")


def encyclopedia(folder: Path) -> None:
    """A table with odd columns, of which one is the text."""
    with (folder / "dump-2015.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="|")
        rows.writerow(["#", "Länge", "wikitext (clean)", "?", ""])
        for number, text in enumerate(sampled("enwiki", 10_000_000)):
            rows.writerow([number, len(text), text, "", "x"])


def proposals(folder: Path) -> None:
    for number, text in enumerate(sampled("techdocs", 6_000_000)):
        place = folder / f"{number % 7}" / "accepted (old)"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.md").write_text(text, encoding="utf-8")


def licenses(folder: Path) -> None:
    """Many copies of few texts."""
    number = 0
    for path in sorted(Path(sysconfig.get_path("purelib")).glob("*.dist-info/**/*")):
        if path.is_file() and path.name.upper().startswith(("LICEN", "NOTICE", "COPYING")):
            (folder / f"{number}-{path.name}.txt").write_bytes(path.read_bytes())
            number += 1


def noisy_copies(folder: Path) -> None:
    """Each text five times, with a few letters changed."""
    drawn = random.Random(1)
    with (folder / "scraped.jsonl").open("w", encoding="utf-8") as file:
        for text in sampled("enwiki", 1_500_000):
            for _ in range(5):
                letters = list(text)
                for place in drawn.sample(range(len(text)), len(text) // 500):
                    letters[place] = drawn.choice("abcdefgh ~")
                file.write(json.dumps({"content": "".join(letters)}) + "\n")


def one_large_file(folder: Path) -> None:
    with (folder / "all.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"{text}\n\n" for text in sampled("books", 24_000_000))


def programs(folder: Path) -> None:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        (folder / path.name).write_bytes(path.read_bytes())


def chats_alone(folder: Path) -> None:
    chats(folder)
    for path in folder.glob("*.txt"):
        path.unlink()


def half_broken(folder: Path) -> None:
    rubbish(folder)
    novels(folder)
    (folder / "broken end.jsonl").write_text(json.dumps({"text": GERMAN * 50}) + '\n{"text": "half')


# Folders that can be read to the last file, others with text, and those of which no model can be made.
READABLE = (
    *(books, mail, odd_csv, code, two_languages, chats, nested_markdown, html_in_parquet),
    *(little, huge, odd_names_and_encodings, formats_by_folder),
)
UNREADABLE = (rubbish, empty, chats_alone)
LARGER = (novels, encyclopedia, proposals, licenses, noisy_copies, one_large_file, programs, half_broken)
# `huge` takes no time to make and hours to read.
TWENTY = tuple(one for one in (*READABLE, *UNREADABLE, *LARGER) if one not in (huge, books, code))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.folders", description=__doc__)
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    options = parser.parse_args()
    for make in TWENTY:
        if not options.names or make.__name__ in options.names:
            folder = options.directory / make.__name__
            folder.mkdir(parents=True)
            make(folder)
            print(folder)


if __name__ == "__main__":
    main()
