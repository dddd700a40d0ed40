"""The name of each asset in the store. Dagster's asset keys are the same names, split at the slashes.

The path of a key lies below the store's root: changing it abandons every version made under it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Self

CORPORA = "corpora"
ANY_CORPUS = "*"  # in place of a corpus: its path is then a pattern of the paths of all

# Stages of one corpus whose path begins with the stage. That of all other stages is in the corpus's folder.
TOKEN_SHARDS = "token_shards"
BASE_SHARDS = "base_shards"
TOKEN_INDEX = "token_index"
PASSAGE_INDEX = "passage_index"
STAGE_FIRST = (TOKEN_SHARDS, BASE_SHARDS, TOKEN_INDEX, PASSAGE_INDEX)

# Stages with a name in each key
FILTERS = "filters"
EVALUATION_TEXTS = "evaluation_texts"
CHECKPOINT_EVALUATION = "checkpoint_evaluation"
BENCHMARKS = "benchmarks"
IMPORTED = "imported_scores"  # those that another program measured


class Key(str):
    """What an asset is called in the store: its stage, its corpus if the stage is one of a corpus, and a name
    where there are several of the stage. Corpus and name are empty in a key without them.

    As a string it is its path in the store, such as `corpora/books/raw`, `corpora/books/filters/short`,
    `token_shards/books` or `benchmarks/CHECKPOINT`, as manifests, lineages and messages hold it.
    """

    stage: str
    corpus: str
    name: str

    def __new__(cls, stage: str, corpus: str = "", name: str = "") -> Self:
        folders = [CORPORA, corpus, stage] if corpus and stage not in STAGE_FIRST else [stage, corpus]
        key = super().__new__(cls, "/".join(filter(None, [*folders, name])))
        key.stage, key.corpus, key.name = stage, corpus, name
        return key

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]  # of `__new__`, for pickle
        return self.stage, self.corpus, self.name

    @classmethod
    def from_path(cls, path: str) -> Self:
        """The key of a path that comes from a disk, from Dagster or from a command line."""
        first, _, rest = path.partition("/")
        if first in STAGE_FIRST:
            return cls(first, rest)
        corpus, _, below = rest.partition("/")
        if first != CORPORA or not below:
            return cls(first, name=rest)
        stage, _, name = below.partition("/")
        return cls(stage, corpus, name)

    def of(self, corpus: str) -> Self:
        """The key of this stage for a corpus, if it is one of ANY_CORPUS, else this key."""
        return type(self)(self.stage, corpus, self.name) if self.corpus == ANY_CORPUS else self

    @property
    def is_data(self) -> bool:
        """Whether its versions can be made again from the sources."""
        return self.stage not in LASTING

    @property
    def is_decided_part(self) -> bool:
        """Whether it is one part of DEDUP, as an input of a version that is made from some of its parts."""
        return self.stage == DEDUP and self.name != ""


class DecidedPart(NamedTuple):
    """A part of a corpus, as DEDUP decides on it."""

    corpus: str
    part: str

    @property
    def name(self) -> str:
        """The name of the part of DEDUP that holds the decisions."""
        return f"{self.corpus}.{self.part}"

    @classmethod
    def from_name(cls, name: str) -> Self:
        corpus, _, part = name.partition(".")
        return cls(corpus, part)


EVALUATION_NGRAMS = Key("evaluation_ngrams")
QUALITY_MODEL = Key("quality_model")
DEDUP = Key("dedup")
DEDUP_EVIDENCE = Key("dedup_evidence")
TOKENIZER = Key("tokenizer")
MIXTURE_SEARCH = Key("mixture_search")
PRETRAINED_MODEL = Key("pretrained_model")
BASE_MODEL = Key("base_model")  # that which a section of `post_training` goes on with
EVALUATION = Key("evaluation")
EXPORTED_MODEL = Key("exported_model")

# Stages whose versions stay, whatever names them, unless the training run that they were made from is removed
LASTING = (
    TOKENIZER,
    MIXTURE_SEARCH,
    PRETRAINED_MODEL,
    EVALUATION,
    CHECKPOINT_EVALUATION,
    BENCHMARKS,
    IMPORTED,
    EXPORTED_MODEL,
)

# Beside the keys in a store: training runs, which versions each recipe used last, and what was forgotten
RUNS = "runs"
RECIPES = "recipes"
FORGOTTEN = "forgotten"

TRAIN, VALIDATION = SPLITS = ("train", "validation")  # directories in a version of token shards

# Before the name of a corpus of the pretraining that a tuned model reads again
REHEARSAL = "rehearsal_"


def _of_each_corpus(stage: str) -> Callable[[str], Key]:
    """The keys of a stage, by corpus."""
    return partial(Key, stage)


# An asset without versions in the store: it stands for the content of the source.
source = _of_each_corpus("source")
raw = _of_each_corpus("raw")
transformed = _of_each_corpus("transformed")
edited = _of_each_corpus("edited")
scrubbed = _of_each_corpus("scrubbed")
signals = _of_each_corpus("signals")
languages = _of_each_corpus("languages")
quality = _of_each_corpus("quality")
contamination = _of_each_corpus("contamination")
signatures = _of_each_corpus("signatures")
token_shards = _of_each_corpus(TOKEN_SHARDS)
base_shards = _of_each_corpus(BASE_SHARDS)  # those that the base was trained on, which are read again
token_index = _of_each_corpus(TOKEN_INDEX)
passage_index = _of_each_corpus(PASSAGE_INDEX)

# What each index is made of
INDEXED: Mapping[str, Callable[[str], Key]] = {TOKEN_INDEX: token_shards, PASSAGE_INDEX: scrubbed}


def filtered(corpus: str, name: str) -> Key:
    """What the recipe's filter of this name measures."""
    return Key(FILTERS, corpus, name)


def evaluation_text(name: str) -> Key:
    return Key(EVALUATION_TEXTS, name=name)


def checkpoint_evaluation(checkpoint: str) -> Key:
    return Key(CHECKPOINT_EVALUATION, name=checkpoint)


def benchmarks(checkpoint: str) -> Key:
    return Key(BENCHMARKS, name=checkpoint)


def imported(checkpoint: str) -> Key:
    return Key(IMPORTED, name=checkpoint)


def judged(corpus: str) -> tuple[Key, Key]:
    """The documents of a corpus and quality's verdicts on them."""
    return scrubbed(corpus), quality(corpus)
