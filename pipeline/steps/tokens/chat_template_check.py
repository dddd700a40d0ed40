"""Whether training encodes a conversation as the exported template does."""

from collections.abc import Mapping

from tokenizers import Tokenizer

from pipeline.stages.bpe import CONTROL, TokenizerError, boundaries
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.data.message_tokenizer import for_messages

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
