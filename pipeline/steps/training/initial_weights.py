"""The weights that training starts from: path on this machine, identity, and their model's lineage."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.stages.bpe import CONTROL
from pipeline.steps.tokens.foreseen_tokenizer import foreseen
from pipeline.steps.tokens.tokenizer_files import vocabulary
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.file_hashes import FileHashes
from pipeline.store.fingerprint import combined
from pipeline.store.store import Store
from trainer.config import PretrainedConfig, TrainingConfig
from trainer.config.hugging_face import check_shape, check_vocabulary, file_of, weight_files
from trainer.config.model_files import CONFIG, TOKENIZER
from trainer.config.peft import ADAPTER, adapter_of, check_adaptable
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError


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


def identity(store: Store, training: TrainingConfig) -> dict[str, Any] | None:
    """The hash of the content of the weights, or repository and revision. Raises PipelineError."""
    source = training.pretrained
    if source is None:
        return None
    if source.path is None:
        return {"repo": source.repo, "revision": source.revision}
    return {"sha256": _content(store.hashes, source.path)}


def origin(store: Store, training: TrainingConfig) -> dict[str, Any]:
    """What a checkpoint's lineage says about the weights: their identity, the sha256 of each file and, where
    `lineage.json` lies beside them, the lineage of the model they belong to. Empty without such weights.

    Raises PipelineError.
    """
    source = training.pretrained
    known = identity(store, training)
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
    there, have the shape of the recipe's model and know its tokenizer, as far as that is known yet, and
    unless the tokenizer knows the conversations that are learnt from. Of weights on the hub only config.json
    and tokenizer.json are downloaded. `retrain`: the run makes another tokenizer.
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
            check_shape(directory, training.model)
            weight_files(directory)
        else:
            directory = _downloaded(source)
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


def _downloaded(source: PretrainedConfig) -> Path:
    """The directory of config.json, or of an adapter's settings, and of tokenizer.json if there is one, of
    weights on the hub as they are now.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    download = partial(hf_hub_download, str(source.repo), revision=source.revision)
    try:
        with suppress(EntryNotFoundError):
            download(TOKENIZER)
        try:
            return Path(download(CONFIG)).parent
        except EntryNotFoundError:
            with suppress(EntryNotFoundError):
                return Path(download(ADAPTER)).parent
            raise
    except Exception as error:  # the HTTP library's own errors, which change between its versions
        raise PipelineError(
            f"training.pretrained: the {CONFIG} of {source.repo} at {source.revision} cannot be downloaded "
            f"from the Hugging Face hub: {first_line(error)}"
        ) from error


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
