"""The kept text of all corpora -> a tokenizer, trained once and frozen; or an existing one, frozen."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe, chat
from pipeline.steps.stage import DataStage
from pipeline.steps.tokens import word_counts
from pipeline.steps.tokens.existing_tokenizer import check_template, fetch
from pipeline.steps.tokens.recipe_tokenizers import RecipeTokenizers, with_chat
from pipeline.steps.tokens.tokenizer_files import count_entries, vocabulary
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine, TimeLeft
from pipeline.store.fingerprint import fingerprint
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parts import Counts, kept_documents
from pipeline.store.store import Store
from pipeline.store.versions import NotMadeError
from pipeline.store.work import NAME_LENGTH, Work
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG

COMPARED_BYTES = 256_000  # of each corpus, when a tokenizer that exists is frozen
COMPARED, LOST = "compared_bytes", "lost_bytes"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FrozenTokenizer(DataStage):
    """The recipe's tokenizer, trained on the kept documents of the corpora that are not held out."""

    recipe: str
    corpora: Sequence[str]
    params: bpe.TokenizerChoice
    validation_fraction: float
    section: str = field(default="", compare=False)  # of `post_training`, whose tokenizer is the recipe's

    name = keys.TOKENIZER
    version = bpe.VERSION

    @classmethod
    def all_of(cls, recipe: Recipe) -> Sequence[Self]:
        held_out = recipe.shards.validation_fraction
        return [cls(recipe.name, list(recipe.weights), recipe.tokenizer, held_out, recipe.section)]

    @property
    def inputs(self) -> Sequence[Key]:
        """The keys that decide which text is trained on and which is held out."""
        return [keys.DEDUP, *(key for corpus in self.corpora for key in keys.judged(corpus))]

    @property
    def deciding(self) -> Any:
        """The settings alone: a tokenizer stays when the corpora change."""
        return self.recipe, self.params

    def work(self, store: Store) -> Version:
        version = RecipeTokenizers(store, self.recipe, self.params).in_use()
        if version is None:
            raise NotMadeError(f"{self.key} has not been made for this recipe yet")
        return version

    def make(self, store: Store, engine: Engine, retrain: bool = False) -> Version:
        """One in the store is reused even if the corpora have changed: a new one would invalidate every shard
        and checkpoint.

        `retrain` makes a new one, or fetches an existing one again; so does a change of `params`. Raises
        TokenizerError, also when the one in use is damaged, lost, or made by other code.
        """
        tokenizers = RecipeTokenizers(store, self.recipe, self.params)
        if self.params.chat == "appended":
            return _append_chat(tokenizers)
        settings = tokenizers.settings
        # Looked up under the lock: of two runs at once the second one gets the tokenizer of the first.
        with store.locked(self.key, fingerprint(settings)[:NAME_LENGTH]):
            version = None if retrain else tokenizers.in_use()
            if version is not None:
                store.use(version)
                return replace(version, reused=True)
            if isinstance(self.params, bpe.ExistingTokenizer):
                return self._fetch(store, self.params, settings)
            if self.section:
                raise bpe.TokenizerError(
                    f"{self.section} has the recipe's tokenizer, which is trained on the recipe's corpora: "
                    "run the job `pretrain` first"
                )
            return self._train(store, engine, self.params, settings)

    def _fetch(self, store: Store, params: bpe.ExistingTokenizer, settings: dict[str, Any]) -> Version:
        files = fetch(params)
        given_back = _given_back(store, self.corpora, files)
        if given_back.lost:
            log.warning("%s: of %r, %s: no bits per byte are measured", self.key, params.source, given_back)
        inputs = {name: fingerprint(content) for name, content in files.items()}
        with store.making(Work(self.key, self.version, settings, inputs)) as draft:
            return draft if isinstance(draft, Version) else _publish(draft, files, _losses(given_back))

    def _train(
        self, store: Store, engine: Engine, params: bpe.TokenizerParams, settings: dict[str, Any]
    ) -> Version:
        settings |= {"validation_fraction": self.validation_fraction}
        with store.making(Work(self.key, self.version, settings, store.data_versions(self.inputs))) as draft:
            if isinstance(draft, Version):
                return draft
            with draft.scratch(engine.apart) as scratch:
                words, counts = word_counts.of_sample(
                    store, engine, scratch, self.corpora, params, self.validation_fraction
                )
            with TimeLeft("tokenizer: %.0f of %.0f merges") as merging:
                trained = bpe.train_on_words(words, params, merging.reach)
            return _publish(draft, bpe.files(trained), counts)


def _append_chat(tokenizers: RecipeTokenizers) -> Version:
    """The tokenizer that the recipe has without `chat`, with the tokens for conversations appended."""
    base = tokenizers.base()
    with tokenizers.store.making(tokenizers.appending(base)) as draft:
        if isinstance(draft, Version):
            return draft
        files = with_chat(base)
        check_template(files)
        return _publish(draft, files, {})


def _given_back(store: Store, corpora: Sequence[str], files: Mapping[str, str]) -> bpe.GivenBack:
    """Compares the first COMPARED_BYTES of each corpus with what their tokens give back."""
    tokenizer = files[TOKENIZER]
    encoder = bpe.Encoder(tokenizer, bpe.boundaries(tokenizer, files[TOKENIZER_CONFIG]), fast=False)
    given_back = bpe.GivenBack()
    for corpus in corpora:
        kept = (batch.column("text") for batch in kept_documents(store, corpus))
        for texts in word_counts.sample(kept, COMPARED_BYTES, {}):
            contents = chat.contents(texts)
            given_back.add(contents.to_pylist(), encoder.decode(*encoder.encode(contents)))
    return given_back


def _losses(given_back: bpe.GivenBack) -> Counts:
    if not given_back.lost:
        return {}
    kinds = {f"{LOST}/{kind}": size for kind, size in given_back.kinds.items()}
    return {COMPARED: given_back.checked, LOST: given_back.lost, **kinds}


def _publish(draft: Draft, files: Mapping[str, str], counts: Mapping[str, int]) -> Version:
    written = {name: draft.write(name, content) for name, content in files.items()}
    entries = count_entries(vocabulary(files[TOKENIZER]))
    part = Part(keys.TOKENIZER, draft.work.fingerprint, written, {**counts, "entries": entries})
    return draft.publish([part])
