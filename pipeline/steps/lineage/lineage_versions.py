"""The versions that a model was made from and those made of it, whatever its recipe means by now."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.steps.lineage.checkpoints import TrainedModel
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.last_versions import RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.variant_names import BASE


class LineageVersions:
    """What a lineage names, for a `Store`. `made`: what was made of the model."""

    def __init__(self, trained: TrainedModel, made: Iterable[Version] = ()):
        lineage = trained.lineage
        self.name = RecipeName(lineage["recipe"]["name"], "", variant=lineage.get("variant", ""))
        self._assets = lineage["assets"]
        self._made = {version.key: version for version in made}

    @property
    def title(self) -> str:
        """The recipe and its variant."""
        return titled(self.name.directory, self.name.variant)

    def find(self, store: Store, key: Key) -> Version:
        """Raises StoreError for what the lineage does not name, or is not in the store any more."""
        if key in self._made:
            return self._made[key]
        if key not in self._assets:
            raise StoreError(f"{key} is not in the lineage of this model")
        return version_of(store, self._assets, key)

    def asset(self, key: Key) -> Key:
        return key

    def job(self, key: Key) -> str:
        raise NotImplementedError  # what a lineage names was made


def version_of(store: Store, assets: Mapping[str, Any], key: Key) -> Version:
    """The version of `key` among the `assets` of a lineage. Raises StoreError if it is gone."""
    return store.open(key, Path(assets[key]["path"]).name)


def tokenizer_of(store: Store, assets: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer among the `assets` of a lineage. Raises StoreError if it is gone."""
    files = TokenizerFiles.read(version_of(store, assets, keys.TOKENIZER).directory())
    return Tokenizer.from_str(files.tokenizer_json)


def titled(recipe: str, variant: str) -> str:
    """A recipe, and the variant of it if it is one."""
    return f"{recipe}, variant {variant}" if variant not in ("", BASE) else recipe
