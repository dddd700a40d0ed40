"""The language of each document by py3langid, which knows 139 languages and has its model in its wheel, or by
a fastText model.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from pipeline.stages.fasttext import read_model, scores
from pipeline.store.errors import PipelineError, did_you_mean
from pipeline.store.params import required

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

STRETCH = 500  # characters
VERSION = f"language-2-py3langid-{version('py3langid')}-{STRETCH}"

LANGUAGES_SCHEMA = required(
    id=pa.string(), language=pa.string(), language_confidence=pa.float64(), language_stop_words=pa.int64()
)

# ISO 639 codes of the detector, listed here so that checking a recipe need not load it, which takes 1 s.
_CODES = (
    "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi "
    "fo fr fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik "
    "kk km kn ko ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm "
    "pl ps pt qu ro ru rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs "
    "vec vi vo wa wuu xh yo yue zh zu"
)
LANGUAGES = frozenset(_CODES.split())
_NO_BETTER_THAN_CHANCE = 0.02


def detect(documents: pa.RecordBatch, model: Path | None = None) -> pa.RecordBatch:
    """LANGUAGES_SCHEMA for each document: the most likely language, its probability among all languages, and
    how many of its stop words occur.

    A document of more than 1,500 characters is judged by its first, middle and last 500, so that a license at
    the beginning does not decide. `und` is undetermined, `zxx` is text without a language, such as numbers.
    About 800 documents a second on one core, however long they are. A fastText `model` reads all of a
    document, and its `und` is a text without a known word. Raises PipelineError.
    """
    excerpts = [excerpt(text or "") for text in documents.column("text").to_pylist()]
    if model:
        likely = scores(_model(model), documents.column("text"))
        confidences = likely.max(axis=1)
        names = [*_languages(model), "und"]
        best = np.where(confidences > 0, likely.argmax(axis=1), -1)
        languages = [names[label] for label in best]
    else:
        found = [_identifier().classify(text) for text in excerpts]
        languages = [language for language, _ in found]
        confidences = np.array([confidence for _, confidence in found])
    stop_words = [_stop_words(language, text) for language, text in zip(languages, excerpts, strict=True)]
    columns = [
        documents.column("id").cast(pa.string()),
        pa.array(languages, pa.string()),
        pa.array(confidences, pa.float64()),
        pa.array(stop_words, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LANGUAGES_SCHEMA)


class Language(NamedTuple):
    """What is known of a language: its most frequent words, and the thresholds of quality rules. The words of
    one that is not `spaced` are found anywhere in a text.
    """

    stop_words: frozenset[str]
    spaced: bool
    thresholds: dict[str, float]


@cache
def known() -> dict[str, Language]:
    """The languages but English, from languages.json, by their ISO 639 codes and by GlotLID's labels."""
    read = orjson.loads(Path(__file__).with_name("languages.json").read_bytes()).items()
    found = {
        name: Language(frozenset(one["stop_words"]), one["spaced"], one["thresholds"]) for name, one in read
    }
    return found | {one["config"]: found[name] for name, one in read}


def _stop_words(language: str, text: str) -> int:
    if (one := known().get(language)) is None:
        return 0
    if one.spaced:
        return len(one.stop_words.intersection(text.split()))
    return sum(word in text for word in one.stop_words)


def check(model: Path, languages: Sequence[str]) -> None:
    """Raises PipelineError when a fastText model does not know one of these languages."""
    known = _languages(model)
    for language in set(languages) - set(known):
        hint = did_you_mean(language, known, f"it knows {' '.join(sorted(known))}")
        raise PipelineError(f"quality.languages: {model} does not know {language!r}: {hint}")


def _languages(model: Path) -> list[str]:
    return [label.removeprefix("__label__") for label in _model(model).labels]


_model = lru_cache(maxsize=2)(read_model)


def excerpt(text: str) -> str:
    """The characters of a text that the detector reads."""
    if len(text) <= 3 * STRETCH:
        return text
    middle = (len(text) - STRETCH) // 2
    return "\n".join((text[:STRETCH], text[middle : middle + STRETCH], text[-STRETCH:]))


@cache
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(
        MODEL_FILE, norm_probs=True, min_confidence=_NO_BETTER_THAN_CHANCE
    )
