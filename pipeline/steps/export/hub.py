"""The exported model, or exported documents, on the Hugging Face hub."""

import json
from collections.abc import Sequence
from datetime import date
from http.client import CONFLICT, INTERNAL_SERVER_ERROR, PRECONDITION_FAILED, TOO_MANY_REQUESTS, responses
from pathlib import Path

from pipeline.steps.export import croissant
from pipeline.steps.export.documents import FORMAT
from pipeline.steps.export.whole_model import check_whole
from pipeline.store.errors import PipelineError, first_line
from trainer.config.model_files import CONFIG
from trainer.system.durable import read_json, write_atomically

# HTTP's statuses. The hub hides what a token may not see, and says when others write at the same time.
REFUSED = (401, 403, 404)
BUSY = (CONFLICT, PRECONDITION_FAILED, TOO_MANY_REQUESTS)
# What readers of a model would take beside its files, or instead of them.
OTHER_MODEL = (
    "model*.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "chat_template*.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
)


def push(model: Path, repository: str, public: bool) -> str:
    """Uploads the files of an export, with card and lineage, in one commit, and returns the commit's address.
    Weights, adapters and templates of another model are gone from that commit; all other files stay.

    A new repository is private unless `public`. The token is the hub's own: HF_TOKEN, or the file that
    `hf auth login` writes. Raises PipelineError.
    """
    try:
        # a checkpoint has a lineage, too
        config, lineage = read_json(model / CONFIG), read_json(model / "lineage.json")
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"{model} is not an exported model ({error}): give a run that has ended"
        ) from error
    if config.get("attention_sinks"):
        raise PipelineError(
            f"{model} cannot be pushed: no reader of the hub's models has a dense one with attention sinks. "
            "Train without training.model.attention_sinks, or use the model with `python -m trainer`"
        )
    check_whole(model)
    message = f"{lineage['recipe']['name']}, {lineage['training']['tokens']:,} tokens, {model.name}"
    return _upload(model, repository, public, message=message, old=OTHER_MODEL)


def push_documents(exported: Path, repository: str, public: bool) -> str:
    """As `push`, for the directory of exported documents, as a data set. Documents of an earlier push that
    are not in this one are gone from the newest commit.
    """
    from huggingface_hub import HfApi

    try:
        facts, described = read_json(exported / "export.json"), read_json(exported / croissant.FILE)
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is {facts['format']}")
    except (OSError, ValueError, KeyError) as error:
        raise PipelineError(
            f"{exported} does not hold exported documents ({error}): give what "
            f"`python -m pipeline export --format {FORMAT} -o OUT` wrote"
        ) from error
    place = {"url": f"{HfApi().endpoint}/datasets/{repository}", "datePublished": str(date.today())}
    write_atomically(exported / croissant.FILE, json.dumps(described | place, indent=1))
    documents = sum(count for name, count in facts["counts"].items() if name.endswith("_documents"))
    return _upload(
        exported, repository, public, message=f"{documents:,} documents", kind="dataset", old=["*/*.parquet"]
    )


def _upload(
    directory: Path, repository: str, public: bool, *, message: str, old: Sequence[str], kind: str = "model"
) -> str:
    """Files in the repository that match `old` are deleted, unless they are in the directory, too."""
    from huggingface_hub import HfApi

    hub = HfApi(library_name="groundwork")
    try:
        hub.create_repo(repository, private=not public, exist_ok=True, repo_type=kind)
        if public or hub.repo_info(repository, repo_type=kind).private:
            return hub.upload_folder(
                repo_id=repository,
                repo_type=kind,
                folder_path=directory,
                commit_message=message,
                ignore_patterns=["manifest.json", ".*"],  # the store's own
                delete_patterns=list(old),
            ).commit_url
    except Exception as error:  # the HTTP library's own errors, which change between its versions
        raise PipelineError(f"{repository} cannot be pushed to {hub.endpoint}: {_why(error)}") from error
    raise PipelineError(f"{repository} exists and is public: give --public to publish there")


def _why(error: Exception) -> str:
    """The library's message, with the status of a large file, which it leaves to the cause, and a remedy."""
    answers = (getattr(one, "response", None) for one in (error, error.__cause__))
    status = next((answer.status_code for answer in answers if answer is not None), 0)
    said = first_line(error).rstrip(".")
    if status and str(status) not in said:
        said += f": {status} {responses.get(status, '')}".rstrip()
    if status in REFUSED:
        return f"{said}. HF_TOKEN, or the token of `hf auth login`, must allow writing there"
    unreached = not status and not isinstance(error, OSError | ValueError)  # an error of the HTTP library
    if unreached or status in BUSY or status >= INTERNAL_SERVER_ERROR:
        return f"{said}. Repeat the command later: large files that have arrived are not sent again"
    return said
