"""Why the Hugging Face hub does not give what it was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from trainer.system.errors import TrainerError, reason


@contextmanager
def downloading(what: str) -> Iterator[None]:
    """Raises TrainerError if the hub does not give `what`, with the reason. Other TrainerErrors pass."""
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:  # the HTTP library's own errors, which change between its versions
        raise TrainerError(
            f"{what} cannot be downloaded from the Hugging Face hub: {refusal(error)}"
        ) from error


def refusal(error: Exception) -> str:
    """One sentence about an error of huggingface_hub, with what to do."""
    from huggingface_hub import constants, errors

    match error:
        # `datasets` loses the error of the hub, and keeps its own words.
        case Exception() if isinstance(error, errors.GatedRepoError) or "is a gated data" in str(error):
            return "it is gated: accept its terms on its page, and set HF_TOKEN to a token of that account"
        case errors.RepositoryNotFoundError():
            return "it does not exist or is private: check its name, or set HF_TOKEN"
        case errors.RevisionNotFoundError():
            return "it has no such revision: check `revision`"
        case errors.HFValidationError():
            return f"the hub has no such names: {reason(error)}"
        case errors.RemoteEntryNotFoundError():
            return f"it has no file {error.response.url.path.rpartition('/')[2]}"
        case errors.HfHubHTTPError() if error.response.status_code == HTTPStatus.UNAUTHORIZED:
            return "it refuses HF_TOKEN: copy the token again, or unset it"
        case errors.NotASafetensorsRepoError():
            return "it has none in safetensors: name a model that has, or convert its weights"
        case errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return "it is not in the cache of the hub, and HF_HUB_OFFLINE is set: download it while online"
        case errors.LocalEntryNotFoundError():
            return f"{constants.ENDPOINT} does not answer: {reason(error.__cause__ or error)}"
    return reason(error)
