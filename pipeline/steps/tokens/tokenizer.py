"""The kept text of all corpora -> a tokenizer, trained once and frozen; or an existing one, frozen."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe, chat
from pipeline.steps.stage import DataStage
from pipeline.steps.tokens import word_counts
from pipeline.steps.tokens.chat_template import check_template
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.store import keys
from pipeline.store.damage import Look, described, remedy
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine, TimeLeft
from pipeline.store.fingerprint import canonical_json, file_sha256, fingerprint
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parts import Counts, kept_documents
from pipeline.store.store import Store, StoreError
from pipeline.store.work import NAME_LENGTH, Work
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG

COMPARED_BYTES = 256_000  # of each corpus, when a tokenizer that exists is frozen
COMPARED, LOST = "compared_bytes", "lost_bytes"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer: its content and hash, and the tokens that begin and end a document."""

    tokenizer_json: str
    sha256: str
    boundaries: bpe.Boundaries


def frozen(directory: Path) -> TokenizerFiles:
    """Reads a tokenizer. Raises TokenizerError if files are missing or name no begin and end of text."""
    names = TOKENIZER, TOKENIZER_CONFIG
    try:
        tokenizer, config = ((directory / name).read_text(encoding="utf-8") for name in names)
    except OSError as error:
        raise bpe.TokenizerError(f"{directory} does not hold {' and '.join(names)}: {error}") from error
    return TokenizerFiles(tokenizer, file_sha256(directory / TOKENIZER), bpe.boundaries(tokenizer, config))


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
        version = in_store(store, self.recipe, self.params)
        if version is None:
            raise StoreError(f"{self.key} has not been made for this recipe yet: materialize it first")
        return version

    def make(self, store: Store, engine: Engine, retrain: bool = False) -> Version:
        """One in the store is reused even if the corpora have changed: a new one would invalidate every shard
        and checkpoint.

        `retrain` makes a new one, or fetches an existing one again; so does a change of `params`. Raises
        TokenizerError, also when the one in use is damaged, lost, or made by other code.
        """
        if self.params.chat == "appended":
            return _appended(store, self.recipe, self.params)
        settings = _settings(self.recipe, self.params)
        # Looked up under the lock: of two runs at once the second one gets the tokenizer of the first.
        with store.locked(self.key, fingerprint(settings)[:NAME_LENGTH]):
            version = None if retrain else in_store(store, self.recipe, self.params)
            if version is not None:
                store.use(version)
                return replace(version, reused=True)
            if isinstance(self.params, bpe.ExistingTokenizer):
                return self._fetched(store, self.params, settings)
            if self.section:
                raise bpe.TokenizerError(
                    f"{self.section} has the recipe's tokenizer, which is trained on the recipe's corpora: "
                    "run the job `pretrain` first"
                )
            return self._trained(store, engine, self.params, settings)

    def _fetched(self, store: Store, params: bpe.ExistingTokenizer, settings: dict[str, Any]) -> Version:
        fetched = fetch(params)
        given_back = _given_back(store, self.corpora, fetched)
        if given_back.lost:
            log.warning("%s: of %r, %s: no bits per byte are measured", self.key, params.source, given_back)
        inputs = {name: fingerprint(content) for name, content in fetched.items()}
        with store.making(Work(self.key, self.version, settings, inputs)) as draft:
            return draft if isinstance(draft, Version) else _publish(draft, fetched, _losses(given_back))

    def _trained(
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


def _given_back(store: Store, corpora: Sequence[str], contents: Mapping[str, str]) -> bpe.GivenBack:
    """Compares the first COMPARED_BYTES of each corpus with what their tokens give back."""
    encoder = bpe.Encoder(
        contents[TOKENIZER], bpe.boundaries(contents[TOKENIZER], contents[TOKENIZER_CONFIG]), fast=False
    )
    found = bpe.GivenBack()
    for corpus in corpora:
        kept = (one.column("text") for one in kept_documents(store, corpus))
        for texts in word_counts.sample(kept, COMPARED_BYTES, {}):
            said = chat.contents(texts)
            found.add(said.to_pylist(), encoder.decode(*encoder.encode(said)))
    return found


def _losses(given_back: bpe.GivenBack) -> Counts:
    if not given_back.lost:
        return {}
    kinds = {f"{LOST}/{kind}": size for kind, size in given_back.kinds.items()}
    return {COMPARED: given_back.checked, LOST: given_back.lost, **kinds}


def _appended(store: Store, recipe: str, params: bpe.TokenizerParams) -> Version:
    """The tokenizer that the recipe has without `chat`, with the tokens for conversations appended to its
    own.
    """
    work, base = _appending(store, recipe, params)
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        contents = _with_chat(base)
        check_template(contents)
        return _publish(draft, contents, {})


def _with_chat(base: Version) -> dict[str, str]:
    names = base.parts[0].files
    return bpe.with_chat({name: (base.directory() / name).read_text(encoding="utf-8") for name in names})


def _appending(store: Store, recipe: str, params: bpe.TokenizerParams) -> tuple[Work, Version]:
    recorded = store.used_by_recipe_file(keys.TOKENIZER)
    known = sorted(store.used_first(keys.TOKENIZER), key=lambda version: version.path not in recorded)
    base = _first(store, known, recipe, params.model_copy(update={"chat": False}))
    if base is None:
        raise bpe.TokenizerError(
            "tokenizer.chat is `appended`, but the store has no tokenizer of this recipe without tokens for "
            "conversations: materialize that one first, or set `chat: true`"
        )
    settings = _settings(recipe, params)
    return Work(keys.TOKENIZER, bpe.VERSION, settings, {"appended_to": base.data_version}), base


def _publish(draft: Draft, contents: Mapping[str, str], counts: Mapping[str, int]) -> Version:
    files = {name: draft.write(name, content) for name, content in contents.items()}
    entries = _count(vocabulary(contents[TOKENIZER]))
    part = Part(keys.TOKENIZER, draft.work.fingerprint, files, {**counts, "entries": entries})
    return draft.publish([part])


def vocabulary(tokenizer_json: str) -> dict[str, int]:
    """The id of each entry, added tokens included."""
    return Tokenizer.from_str(tokenizer_json).get_vocab(with_added_tokens=True)


def _count(known: Mapping[str, int]) -> int:
    return 1 + max(known.values())


@dataclass(frozen=True)
class ForeseenTokenizer:
    """What is known of a tokenizer before a run makes it: the id of each entry, or of the first ones where
    text will decide the others, and how many entries it has.
    """

    known: Mapping[str, int]
    entries: int
    source: str


def foreseen(store: Store, recipe: Recipe, retrain: bool) -> ForeseenTokenizer:
    """What is known of the tokenizer that a run will use. Raises TokenizerError when there will be no
    tokenizer.
    """
    params = recipe.tokenizer
    if params.chat == "appended":
        known = vocabulary(_with_chat(_appending(store, recipe.name, params)[1])[TOKENIZER])
    elif version := None if retrain else in_store(store, recipe.name, params):
        known = vocabulary(frozen(version.directory()).tokenizer_json)
    elif isinstance(params, bpe.ExistingTokenizer):
        known = vocabulary(fetch(params)[TOKENIZER])
        return ForeseenTokenizer(known, _count(known), params.source)
    else:
        known = {entry: number for number, entry in enumerate(bpe.first_entries(params))}
        return ForeseenTokenizer(known, params.vocab_size, "the tokenizer to be trained")
    return ForeseenTokenizer(known, _count(known), "the recipe's tokenizer")


def _settings(recipe: str, params: bpe.TokenizerChoice) -> dict[str, Any]:
    return json.loads(canonical_json({"recipe": recipe, "tokenizer": params}))


def in_store(store: Store, recipe: str, params: bpe.TokenizerChoice) -> Version | None:
    """The recipe's tokenizer, made from any version of the corpora: the one that the recipe used last, else
    the newest. None if it has none yet.

    Raises TokenizerError when it has one that cannot be used: nothing but `retrain` replaces a tokenizer.
    """
    if params.chat == "appended":
        return store.existing(_appending(store, recipe, params)[0])
    recorded = store.used_by_recipe_file(keys.TOKENIZER)
    known = list(store.used_first(keys.TOKENIZER))
    lost = [path for path in recorded if path not in {version.path for version in known}]
    if lost and lost[0] == recorded[0]:
        raise _lost_error(lost[0])
    if found := _first(store, known, recipe, params):
        return found
    if lost:
        raise _lost_error(lost[0])
    for version in (version for version in known if version.path in recorded):
        name = version.manifest["params"]["recipe"]
        if name != recipe and _has_settings(version, params):
            raise _frozen_error(
                version, f"this recipe was called {name!r} when it was made", "name it so again"
            )
    return None


def _first(
    store: Store, versions: Iterable[Version], recipe: str, params: bpe.TokenizerChoice
) -> Version | None:
    """The first version that the recipe made with these settings. Raises TokenizerError when it cannot be
    used.
    """
    for version in versions:
        if version.manifest["params"]["recipe"] == recipe and _has_settings(version, params):
            _check(store, version, params)
            return version
    return None


def _has_settings(version: Version, params: bpe.TokenizerChoice) -> bool:
    """Whether a tokenizer was made with these settings."""
    return bool(version.manifest["params"]["tokenizer"] == json.loads(canonical_json(params)))


def _check(store: Store, version: Version, params: bpe.TokenizerChoice) -> None:
    if damage := store.damage(version, Look.ALL):  # small, and everything depends on it
        raise bpe.TokenizerError(f"{described(damage)}: {remedy(keys.TOKENIZER)}")
    code_version = version.manifest["code_version"]
    if code_version != bpe.VERSION:
        raise _frozen_error(version, f"it was made by an earlier version of this program ({code_version})")


def _frozen_error(version: Version, why: str, keep: str = "name it in `tokenizer: {from: ...}`") -> Exception:
    return bpe.TokenizerError(
        f"the tokenizer {version.path} is frozen, but {why}: to keep it, {keep}; for a new one, which "
        "invalidates every shard and checkpoint, ask by `ops: {tokenizer: {config: {retrain: true}}}` "
        "(docs/jobs.md)"
    )


def _lost_error(path: Path) -> Exception:
    return bpe.TokenizerError(
        f"{path}, the recipe's tokenizer, is missing or its manifest is damaged: {remedy(keys.TOKENIZER)}"
    )
