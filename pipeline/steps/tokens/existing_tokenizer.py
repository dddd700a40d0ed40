"""An existing tokenizer: reads its files from this machine or from the hub, and checks whether training
encodes a conversation as the exported template does.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.sources.hub import dataset
from pipeline.stages.bpe import CONTROL, ExistingTokenizer, TokenizerError, boundaries, with_chat
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.data.message_tokenizer import for_messages
from trainer.system.hub import refusal

# Beginnings and ends of messages that tokenizers treat in ways of their own.
SAID = (
    "Hello, how are you?",
    " a space",
    "\na line",
    "",
    "spaces  ",
    "  two",
    "Ünï 中 🙂",
    "A",
    "don't 1234",
)


def fetch(params: ExistingTokenizer) -> dict[str, str]:
    """The tokenizer.json, unchanged but for the tokens of `chat` and for what cuts or fills texts, and a
    tokenizer_config.json that names the begin and end of text. Raises TokenizerError.
    """
    tokenizer, config = _local(params.path) if params.path.exists() else _from_hub(params)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if config is not None:
        settings = _object(config, TOKENIZER_CONFIG, params)
    settings.pop("auto_map", None)  # names code to download, which is never run
    for key, token in (("bos_token", params.begin_of_text), ("eos_token", params.end_of_text)):
        if token is not None:
            settings[key] = token
    content = _object(tokenizer, TOKENIZER, params)
    if content.get("truncation") or content.get("padding"):  # of somebody's training; readers would follow it
        tokenizer = json.dumps(content | {"truncation": None, "padding": None}, ensure_ascii=False)
    files = {TOKENIZER: tokenizer, TOKENIZER_CONFIG: json.dumps(settings, indent=2)}
    try:
        boundaries(files[TOKENIZER], files[TOKENIZER_CONFIG])
        if params.chat:
            # Other classes of `transformers` change how the tokenizer.json splits text.
            settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
            for name in ("add_prefix_space", "legacy"):
                settings.pop(name, None)
            files = with_chat({**files, TOKENIZER_CONFIG: json.dumps(settings, indent=2)})
            check_template(files)
    except TokenizerError as error:
        raise TokenizerError(f"tokenizer {params.source!r}: {error}") from error
    return files


def _local(path: Path) -> tuple[str, str | None]:
    tokenizer = path / TOKENIZER if path.is_dir() else path
    config = tokenizer.with_name(TOKENIZER_CONFIG)
    try:
        settings = config.read_text(encoding="utf-8") if config.exists() else None
        return tokenizer.read_text(encoding="utf-8"), settings
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"tokenizer: {tokenizer} cannot be read: {error}") from error


def _from_hub(params: ExistingTokenizer) -> tuple[str, str | None]:
    source = params.source
    if source.startswith((".", "/", "~")) or source.endswith(".json") or source.count("/") > 1:
        raise TokenizerError(
            f"tokenizer: {params.path} does not exist: name a tokenizer.json, a directory that holds one, or "
            "a tokenizer on the hub"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    def download(name: str) -> str:
        path = hf_hub_download(source, name, revision=params.revision, token=dataset.token())
        return Path(path).read_text(encoding="utf-8")

    try:
        tokenizer = download(TOKENIZER)
        try:
            return tokenizer, download(TOKENIZER_CONFIG)
        except EntryNotFoundError:
            return tokenizer, None
    except Exception as error:  # the HTTP library's own errors, which change between its versions
        at = f" at revision {params.revision!r}" if params.revision else ""
        raise TokenizerError(
            f"tokenizer: {source!r} is neither a local path nor a tokenizer on the hub: its {TOKENIZER}{at} "
            f"cannot be downloaded: {refusal(error)}"
        ) from error


def _object(text: str, name: str, params: ExistingTokenizer) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise TokenizerError(f"tokenizer {params.source!r}: its {name} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"tokenizer {params.source!r}: its {name} is not a JSON object")
    return content


def check_template(files: Mapping[str, str]) -> None:
    """Checks the `files` of a tokenizer. Raises TokenizerError if a message has other ids when it is encoded
    by itself, as training does, than within the text that CHAT_TEMPLATE makes, as other programs encode it.
    """
    settings = files[TOKENIZER]
    ends = boundaries(settings, files[TOKENIZER_CONFIG])
    whole, alone = Tokenizer.from_str(settings), Tokenizer.from_str(for_messages(settings))
    for tokenizer in (whole, alone):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    alone.encode_special_tokens = True
    begin = str(whole.id_to_token(ends.begin))
    for question, answer in zip(SAID, reversed(SAID), strict=True):
        said = (("user", question), ("assistant", answer), ("user", answer), ("assistant", question))
        text = begin + "".join(f"{CONTROL[role]}{content}{CONTROL['end']}" for role, content in said)
        ids = [ends.begin]
        for role, content in said:
            encoded = alone.encode(content, add_special_tokens=False).ids
            ids += [ends.control[role], *encoded, ends.control["end"]]
        if whole.encode(text, add_special_tokens=False).ids != ids:
            raise TokenizerError(
                f"a conversation that begins with {question!r} has other tokens in training than in the "
                "template of the exported model: take a tokenizer whose tokens do not depend on the special "
                "token before them, or leave out `chat`"
            )
