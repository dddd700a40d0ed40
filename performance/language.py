"""Language detectors on labeled sentences and on whole documents: which one the optional language filter
should use, and what it costs.

`python performance/language.py` needs the sample corpora in ../shared/corpora, spaCy for its example
sentences (each alone: shorter than any document, so a lower bound) and lingua where importable. Sentences of
a language count for a detector only if it knows that language.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from harness.sidebyside import Contender, importable, measure, record, sample, size_of, texts

from pipeline.stages.language import detect, excerpt

Detect = Callable[[list[str]], list[str]]


def ours(found: list[str]) -> list[str]:
    column = pa.array(found, pa.large_string())
    return (
        detect(pa.record_batch({"id": [str(row) for row in range(len(found))], "text": column}))
        .column("language")
        .to_pylist()
    )


def lingua() -> Detect:
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models().build()

    def detect_all(found: list[str]) -> list[str]:
        languages = (detector.detect_language_of(excerpt(text)) for text in found)
        return [language.iso_code_639_1.name.lower() if language else "und" for language in languages]

    return detect_all


def sentences() -> list[tuple[str, str]]:
    """(language, sentence) of spaCy's examples, with codes as ISO 639-1 has them."""
    import spacy.lang

    found = []
    for module in pkgutil.iter_modules(spacy.lang.__path__):
        if (
            module.ispkg
            and len(module.name) == 2
            and importlib.util.find_spec(f"spacy.lang.{module.name}.examples")
        ):
            examples = importlib.import_module(f"spacy.lang.{module.name}.examples").sentences
            found += [(module.name, sentence) for sentence in examples]
    return found


def main() -> None:
    documents = sample(texts(("enwiki", "techdocs", "labelled/neardup_articles_2500"), 60), 1)
    detectors: dict[str, Detect] = {"py3langid": ours}
    if importable("lingua"):
        detectors["lingua"] = lingua()
    contenders = {
        name: Contender(size_of(documents), partial(detector, documents))
        for name, detector in detectors.items()
    }
    report = {"speed": measure(contenders), "documents": len(documents)}
    if importable("spacy"):
        labelled = sentences()
        guesses = {
            name: detector([sentence for _, sentence in labelled]) for name, detector in detectors.items()
        }
        common = set.intersection(*(set(found) for found in guesses.values()))
        rows = [row for row, (language, _) in enumerate(labelled) if language in common]
        report["sentences"] = len(rows)
        report["languages"] = len({labelled[row][0] for row in rows})
        report["right"] = {
            name: round(sum(found[row] == labelled[row][0] for row in rows) / len(rows), 4)
            for name, found in guesses.items()
        }
    record("language", report, ("py3langid", "spacy"))


if __name__ == "__main__":
    main()
