"""Whether a model that leaves is whole: a copy of an export may lack files, or have half of one."""

from pathlib import Path

from tokenizers import Tokenizer

from pipeline.store.errors import PipelineError
from trainer.config.hugging_face import model_config, read_size
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG, read_settings
from trainer.config.tensors import check_tensors, stored_shapes

COPY = "copy the whole directory of the export again"


def check_whole(model: Path) -> None:
    """Raises TrainerError or PipelineError unless a directory has weights of the shape that config.json
    names, and a tokenizer. Of the weights it reads the headers.
    """
    check_tensors(model, stored_shapes(model), model_config(model), read_size(model, "vocab_size"))
    for path in (model / TOKENIZER, model / TOKENIZER_CONFIG):
        try:
            read_settings(path)
        except FileNotFoundError:
            raise PipelineError(f"{path}: no such file: {COPY}") from None
    try:
        Tokenizer.from_file(str(model / TOKENIZER))
    except Exception as error:  # tokenizers raises Exception itself
        raise PipelineError(f"{model / TOKENIZER}: is no tokenizer: {error}: {COPY}") from error
