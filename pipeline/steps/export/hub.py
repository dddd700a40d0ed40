"""The exported model on the Hugging Face hub."""

import json
from pathlib import Path

from pipeline.store.errors import PipelineError, first_line


class PushError(PipelineError):
    """The model cannot be pushed; the message says what to change."""


def push(model: Path, repository: str, public: bool) -> str:
    """Uploads the files of an export, with card and lineage, in one commit, and returns the commit's address.

    A new repository is private unless `public`. The token is the hub's own: HF_TOKEN, or the file that
    `hf auth login` writes. Raises PushError.
    """
    from huggingface_hub import HfApi

    try:
        # a checkpoint has a lineage, too
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        lineage = json.loads((model / "lineage.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PushError(f"{model} is not an exported model ({error}): give a run that has ended") from error
    if config.get("attention_sinks"):
        raise PushError(
            f"{model} cannot be pushed: no reader of the hub's models has a dense one with attention sinks. "
            "Train without training.model.attention_sinks, or use the model with `python -m trainer`"
        )
    hub = HfApi(library_name="groundwork")
    try:
        hub.create_repo(repository, private=not public, exist_ok=True)
        is_private = hub.model_info(repository).private
        if is_private or public:
            message = f"{lineage['recipe']['name']}, {lineage['training']['tokens']:,} tokens, {model.name}"
            return hub.upload_folder(
                repo_id=repository,
                folder_path=model,
                commit_message=message,
                ignore_patterns=["manifest.json", ".*"],  # the store's own
            ).commit_url
    except Exception as error:  # the HTTP library's own errors, which change between its versions
        raise PushError(
            f"{repository} cannot be pushed to {hub.endpoint}: {first_line(error)}. HF_TOKEN, or the token "
            "of `hf auth login`, must allow writing there"
        ) from error
    raise PushError(f"{repository} exists and is public: give --public to publish the model there")
