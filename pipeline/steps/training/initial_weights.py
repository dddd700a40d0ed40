"""The weights that training starts from: path on this machine, identity, and their model's lineage."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.stages.bpe import CONTROL
from pipeline.steps.tokens.recipe_tokenizers import foreseen
from pipeline.steps.tokens.tokenizer_files import vocabulary
from pipeline.store.errors import PipelineError
from pipeline.store.file_hashes import FileHashes
from pipeline.store.fingerprint import combined
from pipeline.store.store import Store
from trainer.config import PretrainedConfig, TrainingConfig
from trainer.config.hugging_face import check_shape, check_vocabulary, file_of
from trainer.config.model_files import CONFIG, INDEX, SINGLE, TOKENIZER, read_settings
from trainer.config.peft import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    adapter_of,
    base_named,
    check_adaptable,
    downloaded,
    holds_weights,
)
from trainer.config.tensors import Shape, check_tensors, stored_shapes
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError
from trainer.system.hub import downloading


def located(recipe: Recipe) -> TrainingConfig:
    """The recipe's training with the resolved path of its weights, or their commit where it is known."""
    training = recipe.training
    source = training.pretrained
    if source is None:
        return training
    if source.path is not None:
        pretrained = source.model_copy(update={"path": recipe.path(source.path)})
    else:
        pretrained = source.model_copy(update={"revision": _commit(source)})
    return training.model_copy(update={"pretrained": pretrained})


def _commit(source: PretrainedConfig) -> str | None:
    """What a branch or tag of the hub meant when a run of this machine last began, so that a branch that
    moves makes other work. The branch or tag itself where none has.
    """
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # no name of a repository, which `check` refuses
        for name in (CONFIG, ADAPTER):
            found = try_to_load_from_cache(str(source.repo), name, revision=source.revision)
            if isinstance(found, str):
                return Path(found).parent.name
    return source.revision


def identity(store: Store, source: PretrainedConfig | None) -> dict[str, Any] | None:
    """The hash of the content, or repository, revision and, of an adapter, base. Raises PipelineError."""
    if source is None:
        return None
    if source.path is not None:
        return {"sha256": _content(store.hashes, source.path)}
    known: dict[str, Any] = {"repo": source.repo, "revision": source.revision}
    if base := _base(source):
        known["base"] = identity(store, base)
    return known


def _base(source: PretrainedConfig) -> PretrainedConfig | None:
    """The model that an adapter of the hub changes, as it was when a run of this machine last began. None for
    other weights, and for those that no run has looked at.
    """
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # as in _commit
        found = try_to_load_from_cache(str(source.repo), ADAPTER, revision=source.revision)
        if isinstance(found, str) and not holds_weights(Path(found).parent):
            settings = read_settings(Path(found))
            named = str(settings.get("base_model_name_or_path"))
            base = base_named(Path(found).parent, named, settings.get("revision"))
            return base if base.path else base.model_copy(update={"revision": _commit(base)})
    return None


def origin(store: Store, training: TrainingConfig) -> dict[str, Any]:
    """What a checkpoint's lineage says about the weights: their identity, the sha256 of each file and, where
    `lineage.json` lies beside them, the lineage of the model they belong to. Empty without such weights.
    Raises PipelineError.
    """
    source = training.pretrained
    known = identity(store, source)
    if source is None or known is None:
        return {}
    if source.path is not None:
        known["files"] = {path.name: store.hashes.sha256(path) for path in _weights(source.path)}
        known |= _lineage_beside(source.path)
    return {"pretrained": known}


def _lineage_beside(weights: Path) -> dict[str, Any]:
    """The lineage in an exported model, or in the checkpoint whose directory `hf` holds the weights."""
    place = weights.parent if weights.name == "hf" else weights
    try:
        lineage = read_json(place / "lineage.json")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"training.pretrained.path: {place / 'lineage.json'} cannot be read ({error}): copy it again "
            "from the model's own directory, or delete it to train without its lineage"
        ) from error
    complete = isinstance(lineage, dict) and lineage.keys() >= {"recipe", "assets", "training"}
    return {"lineage": lineage} if complete else {}


def check(store: Store, recipe: Recipe, retrain: bool = False) -> None:
    """Checks the weights that a recipe names, before anything is made. Raises PipelineError unless they are
    there, have the shape and the tensors of the recipe's model and know its tokenizer, as far as that is
    known yet, and unless the tokenizer knows the conversations that are learned from. Of a model on the hub
    only config.json, tokenizer.json and the names and shapes of the tensors are downloaded, of an adapter
    all, its base included. `retrain`: the run makes another tokenizer.
    """
    training, tokenizer = recipe.training, foreseen(store, recipe, retrain)
    source = training.pretrained
    if training.objective != "pretrain" and not {*CONTROL.values()} <= tokenizer.known.keys():
        raise PipelineError(
            f"training.objective: {training.objective} learns from conversations, and {tokenizer.source} has "
            "no control tokens such as [USER]: set `chat: true` in `tokenizer`"
        )
    if source is None:
        return
    try:
        if source.path:
            directory = recipe.path(source.path)
            _weights(directory)
        else:
            with downloading(f"the {CONFIG} of {source.repo} at {source.revision}"):
                directory = _looked_at(source)
        check_shape(directory, training.model)
        if training.lora:
            check_adaptable(directory)
        check_vocabulary(
            directory,
            _vocabulary(directory),
            tokenizer.known,
            tokenizer.entries,
            tokenizer.source,
            training.learns_tokens,
        )
        with downloading(f"the weights of {source.repo} at {source.revision}"):
            tensors = _shapes(source, directory)
        place = directory if source.path else source.repo
        check_tensors(place, tensors, training.model, tokenizer.entries, grows=True)
    except TrainerError as error:
        raise PipelineError(f"training.pretrained: {error}") from error


def _vocabulary(directory: Path) -> dict[str, int]:
    """The vocabulary of the tokenizer beside weights; empty if there is none. Raises PipelineError."""
    path = file_of(directory, TOKENIZER)
    if not path.exists():
        return {}
    try:
        return vocabulary(path.read_text(encoding="utf-8"))
    except Exception as error:  # `tokenizers` raises Exception itself
        raise PipelineError(
            f"training.pretrained: {path} cannot be read as a tokenizer: {error}: copy it again from the "
            "model's own directory"
        ) from error


def _looked_at(source: PretrainedConfig) -> Path:
    """The directory of config.json and tokenizer.json, or of an adapter, of weights on the hub as they are
    now. Offline, of all that is in the cache.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download

    where = str(source.repo), source.revision
    if constants.HF_HUB_OFFLINE:
        return downloaded(*where)
    files = {one.rfilename for one in HfApi().model_info(where[0], revision=where[1]).siblings or ()}
    is_adapter = ADAPTER in files and not files & {SINGLE, INDEX}
    needed = (ADAPTER, ADAPTER_WEIGHTS) if is_adapter else (CONFIG,)
    found = [
        Path(hf_hub_download(where[0], name, revision=where[1]))
        for name in dict.fromkeys((*needed, CONFIG, TOKENIZER))
        if name in {*needed, *files}
    ]
    return found[0].parent


def _shapes(source: PretrainedConfig, directory: Path) -> Iterable[tuple[str, Shape]]:
    """The names and shapes of the tensors; those on the hub from the beginnings of their files."""
    from huggingface_hub import HfApi, constants

    if source.path or constants.HF_HUB_OFFLINE or adapter_of(directory):
        return stored_shapes(directory)
    metadata = HfApi().get_safetensors_metadata(str(source.repo), revision=source.revision)
    return [
        (name, tuple(tensor.shape))
        for file in metadata.files_metadata.values()
        for name, tensor in file.tensors.items()
    ]


def _weights(directory: Path) -> list[Path]:
    try:
        adapter = adapter_of(directory)
    except TrainerError as error:
        raise PipelineError(f"training.pretrained.path: {error}") from error
    if adapter:
        return [*_weights(adapter.base), *adapter.files]
    weights = sorted(directory.glob("*.safetensors"))
    if not weights:
        raise PipelineError(
            f"training.pretrained.path: {directory} does not hold *.safetensors files: name another "
            "directory; relative paths start at the recipe"
        )
    return weights


def _content(hashes: FileHashes, directory: Path) -> str:
    weights = _weights(directory)
    try:
        files = (file_of(directory, CONFIG), *weights)
        return combined(f"{path.name} {hashes.sha256(path)}" for path in files)
    except OSError as error:
        raise PipelineError(
            f"training.pretrained.path: {error.filename} cannot be read: {error.strerror}"
        ) from error
