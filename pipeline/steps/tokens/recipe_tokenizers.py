"""The tokenizers of a recipe in the store, which of them its runs use, and what is known of a future one."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles, count_entries, vocabulary
from pipeline.store import keys
from pipeline.store.damage import Look, described, remedy
from pipeline.store.fingerprint import canonical_json
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config.model_files import TOKENIZER


@dataclass(frozen=True)
class RecipeTokenizers:
    """The tokenizers that a recipe has with the settings `params`, made from any version of its corpora."""

    store: Store
    recipe: str
    params: bpe.TokenizerChoice

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters in the fingerprint of a tokenizer."""
        return json.loads(canonical_json({"recipe": self.recipe, "tokenizer": self.params}))

    def in_use(self) -> Version | None:
        """The tokenizer that the recipe used last, else the newest; None if it has none yet. Raises
        TokenizerError when it has one that cannot be used: nothing but `retrain` replaces a tokenizer.
        """
        if self.params.chat == "appended":
            return self.store.existing(self.appending(self.base()))
        recorded = self.store.used_by_recipe_file(keys.TOKENIZER)
        versions = list(self.store.used_first(keys.TOKENIZER))
        paths = {version.path for version in versions}
        lost = [path for path in recorded if path not in paths]
        if lost and lost[0] == recorded[0]:
            raise _lost_error(lost[0])
        if version := self._first_of(versions):
            return version
        if lost:
            raise _lost_error(lost[0])
        for version in versions:
            name = version.manifest["params"]["recipe"]
            if version.path in recorded and name != self.recipe and self._has_settings(version):
                raise _frozen_error(
                    version, f"this recipe was called {name!r} when it was made", "name it so again"
                )
        return None

    def base(self) -> Version:
        """The tokenizer that the recipe has without `chat`, to which `appended` adds tokens."""
        recorded = self.store.used_by_recipe_file(keys.TOKENIZER)
        versions = sorted(
            self.store.used_first(keys.TOKENIZER), key=lambda version: version.path not in recorded
        )
        without_chat = self.params.model_copy(update={"chat": False})
        base = RecipeTokenizers(self.store, self.recipe, without_chat)._first_of(versions)
        if base is None:
            raise bpe.TokenizerError(
                "tokenizer.chat is `appended`, but the store has no tokenizer of this recipe without tokens "
                "for conversations: materialize that one first, or set `chat: true`"
            )
        return base

    def appending(self, base: Version) -> Work:
        """The work of adding the tokens for conversations to a tokenizer."""
        return Work(keys.TOKENIZER, bpe.VERSION, self.settings, {"appended_to": base.data_version})

    def _first_of(self, versions: Iterable[Version]) -> Version | None:
        """The first that the recipe made with these settings. Raises TokenizerError if it cannot be used."""
        for version in versions:
            if version.manifest["params"]["recipe"] == self.recipe and self._has_settings(version):
                _check(self.store, version)
                return version
        return None

    def _has_settings(self, version: Version) -> bool:
        return bool(version.manifest["params"]["tokenizer"] == self.settings["tokenizer"])


def with_chat(base: Version) -> dict[str, str]:
    """The files of a tokenizer, with the tokens for conversations appended to its own."""
    directory = base.directory()
    return bpe.with_chat(
        {name: (directory / name).read_text(encoding="utf-8") for name in base.parts[0].files}
    )


def _check(store: Store, version: Version) -> None:
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


@dataclass(frozen=True)
class ForeseenTokenizer:
    """The id of each entry, or of the first, if text decides the others; and how many there will be."""

    known: Mapping[str, int]
    entries: int
    source: str


def foreseen(store: Store, recipe: Recipe, retrain: bool) -> ForeseenTokenizer:
    """What is known of the tokenizer of a run. Raises TokenizerError when there will be none."""
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
