"""The name of each asset in the store. Dagster's asset keys are the same names, split at the slashes.

A key is a path below the store's root: changing one abandons every version made under it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

EVALUATION_NGRAMS = "evaluation_ngrams"
QUALITY_MODEL = "quality_model"
DEDUP = "dedup"
DEDUP_EVIDENCE = "dedup_evidence"
TOKENIZER = "tokenizer"
MIXTURE_SEARCH = "mixture_search"
PRETRAINED_MODEL = "pretrained_model"
BASE_MODEL = "base_model"  # that which a section of `post_training` goes on with
EVALUATION = "evaluation"
EVALUATION_TEXTS = "evaluation_texts"
CHECKPOINT_EVALUATION = "checkpoint_evaluation"
BENCHMARKS = "benchmarks"
EXPORTED_MODEL = "exported_model"

# Versions that stay, whatever names them, unless the training run that they were made from is removed
LASTING = (
    TOKENIZER,
    MIXTURE_SEARCH,
    PRETRAINED_MODEL,
    EVALUATION,
    CHECKPOINT_EVALUATION,
    BENCHMARKS,
    EXPORTED_MODEL,
)

# Beside the keys in a store: training runs, which versions each recipe used last, and what was forgotten
RUNS = "runs"
RECIPES = "recipes"
FORGOTTEN = "removed"  # its name on disk

CORPORA = "corpora"
TOKEN_SHARDS = "token_shards"
TOKEN_INDEX = "token_index"
PASSAGE_INDEX = "passage_index"
TRAIN, VALIDATION = SPLITS = ("train", "validation")  # directories in a version of token shards

FILTERS = "filters"


def of_corpus(corpus: str, stage: str) -> str:
    """The key of a stage of a corpus."""
    return f"{CORPORA}/{corpus}/{stage}"


# An asset without versions in the store: it stands for the content of the source.
source = partial(of_corpus, stage="source")
raw = partial(of_corpus, stage="raw")
transformed = partial(of_corpus, stage="transformed")
unit_counts = partial(of_corpus, stage="unit_counts")
repeated_units = partial(of_corpus, stage="repeated_units")
edited = partial(of_corpus, stage="edited")
scrubbed = partial(of_corpus, stage="scrubbed")
signals = partial(of_corpus, stage="signals")
languages = partial(of_corpus, stage="languages")
quality = partial(of_corpus, stage="quality")
contamination = partial(of_corpus, stage="contamination")
signatures = partial(of_corpus, stage="signatures")


def filtered(corpus: str, name: str) -> str:
    """What the recipe's filter of this name measures."""
    return of_corpus(corpus, f"{FILTERS}/{name}")


def token_shards(corpus: str) -> str:
    return f"{TOKEN_SHARDS}/{corpus}"


# Before the name of a corpus of the pretraining that a tuned model reads again
REHEARSAL = "rehearsal_"


def base_shards(corpus: str) -> str:
    """The shards of a corpus that the base was trained on, which are read again."""
    return f"base_shards/{corpus}"


def passage_index(corpus: str) -> str:
    return f"{PASSAGE_INDEX}/{corpus}"


def token_index(corpus: str) -> str:
    return f"{TOKEN_INDEX}/{corpus}"


# What each index is made of
INDEXED: Mapping[str, Callable[[str], str]] = {TOKEN_INDEX: token_shards, PASSAGE_INDEX: scrubbed}


def evaluation_text(name: str) -> str:
    return f"{EVALUATION_TEXTS}/{name}"


def checkpoint_evaluation(checkpoint: str) -> str:
    return f"{CHECKPOINT_EVALUATION}/{checkpoint}"


def benchmarks(checkpoint: str) -> str:
    return f"{BENCHMARKS}/{checkpoint}"


def judged(corpus: str) -> tuple[str, str]:
    """The documents of a corpus and quality's verdicts on them."""
    return scrubbed(corpus), quality(corpus)


def is_of_corpus(key: str, corpus: str) -> bool:
    """Whether a key is of a stage of the corpus, of one of the recipe's own filters on it, or of its token
    shards.
    """
    return key.startswith(of_corpus(corpus, "")) or key == token_shards(corpus)


def is_data(key: str) -> bool:
    """Whether the versions of a key can be made again from the sources."""
    return key.partition("/")[0] not in LASTING


def corpus(key: str) -> str:
    """The corpus of a key of a stage of a corpus, or of token shards."""
    return key.split("/")[1]


def stage(key: str) -> str:
    """The stage of a key: that of a corpus, a filter's `filters/<name>`, TOKEN_SHARDS, or the key
    itself.
    """
    family, _, rest = key.partition("/")
    return rest.partition("/")[2] if family == CORPORA else family


def decisions(corpus: str, part: str) -> str:
    """The name, within a version of DEDUP, of the decisions on a part of a corpus."""
    return f"{corpus}.{part}"


def decided_corpus(name: str) -> str:
    """The corpus of the decisions with this name."""
    return name.partition(".")[0]


def dedup_part(name: str) -> str:
    """The name of a part of DEDUP among the inputs of a version that is made from some of its parts."""
    return f"{DEDUP}/{name}"


def is_dedup_part(name: str) -> bool:
    return name.startswith(f"{DEDUP}/")


def corpora_with_shards(keys: Iterable[str]) -> list[str]:
    """The corpora whose token shards are among `keys`, in the order of `keys`."""
    return [corpus(key) for key in keys if key.startswith(f"{TOKEN_SHARDS}/")]
