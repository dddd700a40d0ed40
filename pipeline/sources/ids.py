"""Document ids: the same document has the same id in every run and on every machine."""

import hashlib

OWN_ID = "id:"


def document_id(corpus: str, source_id: str) -> str:
    """The id of a document in a corpus, in hex: its `digest`."""
    return digest(corpus, source_id).hex()


def digest(corpus: str, source_id: str) -> bytes:
    """blake2b-128 of the corpus's name and the source id. The length of the name comes first, so that no two
    pairs give the same input.
    """
    return hashlib.blake2b(
        f"{len(corpus)}:{corpus}{source_id}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def own_id(value: str) -> str:
    """The source id of a document that brings its own id; never equal to a location."""
    return f"{OWN_ID}{value}"


def location(name: str, where: int) -> str:
    """The source id of a document known by its place in a unit: a row from 1, or a byte offset."""
    return f"at:{name}:{where}"
