"""Conversations as token ids: `[BOT] [USER]...[END] [ASSISTANT]...[END] [EOT]`, a preference two in a row.

The texts are those that `pipeline.store.params` describes.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.bpe import Boundaries
from pipeline.store.errors import PipelineError
from pipeline.store.params import CONTENT, MESSAGE, PAIR, ROLE, ROLES

ASSISTANT = ROLES.index("assistant")


class Messages(NamedTuple):
    """The messages of some documents in order: the place of the role in ROLES, the content, the conversation
    and the document of each, both counted from 0.
    """

    roles: np.ndarray
    contents: pa.Array
    conversations: np.ndarray
    documents: np.ndarray


class Documents(NamedTuple):
    """Documents of ids, end to end in `ids`. `lengths` has the number of ids of each document, 0 for one
    that is left out as too long. `answer_bytes` has the bytes of the text of its answers. `shortened` is the
    number of documents that lack their last messages.
    """

    ids: np.ndarray
    lengths: np.ndarray
    answer_bytes: np.ndarray
    shortened: int


def messages(document_ids: pa.Array, texts: pa.Array) -> Messages:
    """The messages of all documents. Raises PipelineError with the id of one that is not a conversation."""
    roles, contents, conversations, documents = [], [], [], []
    count = 0
    for document, text in enumerate(texts.to_pylist()):
        for conversation in text.split(PAIR):
            before, *said = conversation.split(MESSAGE)
            for role, mark, content in (one.partition(CONTENT) for one in said):
                if before or not mark or CONTENT in content or role not in ROLES:
                    said = []
                    break
                roles.append(ROLES.index(role))
                contents.append(content)
                conversations.append(count)
                documents.append(document)
            if not said:
                raise PipelineError(
                    f"document {document_ids[document].as_py()!r} is not a conversation: its corpus needs "
                    "`format: chat` or `preferences`, and code of your own must keep the marks of messages "
                    "(docs/chat.md)"
                )
            count += 1
    numbers = (np.array(column, np.int64) for column in (roles, conversations, documents))
    return Messages(next(numbers), pa.array(contents, pa.large_string()), *numbers)


def parsed(text: str) -> list[list[tuple[str, str]]]:
    """The conversations of a document: role and content of each message."""
    return [
        [(role, content) for role, _, content in (one.partition(CONTENT) for one in said.split(MESSAGE)[1:])]
        for said in text.split(PAIR)
    ]


def contents(texts: pa.Array) -> pa.Array:
    """The texts with a line break in place of the marks and roles of conversations, if any is one."""
    if not pc.any(pc.starts_with(texts, MESSAGE)).as_py():
        return texts
    return pc.replace_substring_regex(texts, ROLE, "\n")


def joined(said: Messages, ids: np.ndarray, lengths: np.ndarray, ends: Boundaries, longest: int) -> Documents:
    """The documents of at least one message, made of `ids` and `lengths` of all messages, their role and
    `[END]` included.

    A conversation of more than `longest` ids ends with the last answer that fits. If none fits, or if it is
    one of two, the document is left out.
    """
    until = np.cumsum(lengths)
    first = np.flatnonzero(np.diff(said.conversations, prepend=-1))  # message of each conversation
    last = np.append(first[1:], len(lengths)) - 1
    document = said.documents[first]  # of each conversation
    before = (until - lengths)[first]
    fits = until - before[said.conversations] + 2 <= longest  # if the conversation ended here
    answers = said.roles == ASSISTANT
    places = np.arange(len(lengths))
    best = np.maximum.reduceat(np.where(fits & answers, places, -1), first)
    best = np.where(fits[last], last, best)
    sizes = np.bincount(document, until[last] - before + 2)
    left_out = (np.bincount(document) > 1) & (sizes > longest)
    best[left_out[document]] = -1
    kept = places <= best[said.conversations]
    some = best >= 0
    kept_lengths = np.where(kept, lengths, 0)
    stops = np.cumsum(np.add.reduceat(kept_lengths, first))[some]
    edges = np.stack([np.append(0, stops)[:-1], stops], axis=1).reshape(-1)
    texts = pc.binary_length(said.contents).to_numpy()
    return Documents(
        np.insert(ids[np.repeat(kept, lengths)], edges, np.tile([ends.begin, ends.end], len(stops))),
        (np.bincount(said.documents, kept_lengths) + np.bincount(document, 2 * some)).astype(np.int64),
        np.bincount(said.documents, texts * (answers & kept)).astype(np.int64),
        int((some & (best < last)).sum()),
    )
