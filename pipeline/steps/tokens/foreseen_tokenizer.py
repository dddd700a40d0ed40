"""What is known of a recipe's tokenizer before a run makes it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.steps.tokens.recipe_tokenizers import RecipeTokenizers, with_chat
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles, count_entries, vocabulary
from pipeline.store.store import Store
from trainer.config.model_files import TOKENIZER


@dataclass(frozen=True)
class ForeseenTokenizer:
    """The id of each entry, or of the first ones where text will decide the others, and how many entries
    there will be.
    """

    known: Mapping[str, int]
    entries: int
    source: str


def foreseen(store: Store, recipe: Recipe, retrain: bool) -> ForeseenTokenizer:
    """What is known of the tokenizer that a run will use. Raises TokenizerError when there will be no
    tokenizer.
    """
    params, source = recipe.tokenizer, "the recipe's tokenizer"
    tokenizers = RecipeTokenizers(store, recipe.name, params)
    if params.chat == "appended":
        known = vocabulary(with_chat(tokenizers.base())[TOKENIZER])
    elif version := None if retrain else tokenizers.in_use():
        known = vocabulary(TokenizerFiles.read(version.directory()).tokenizer_json)
    elif isinstance(params, bpe.ExistingTokenizer):
        known, source = vocabulary(fetch(params)[TOKENIZER]), params.source
    else:
        first = {entry: number for number, entry in enumerate(bpe.first_entries(params))}
        return ForeseenTokenizer(first, params.vocab_size, "the tokenizer to be trained")
    return ForeseenTokenizer(known, count_entries(known), source)
