"""Which documents are held out for validation: a function of the document's id alone."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store.params import GROUP


def share_of(ids: pa.Array, purpose: str) -> np.ndarray:
    """A number in [0, 1) per document id, fixed by (purpose, id), whatever other documents there are."""
    salt = purpose.encode()[:16]
    hashes = (
        hashlib.blake2b(document.encode(), digest_size=8, person=salt).digest()
        for document in ids.to_pylist()
    )
    return np.frombuffer(b"".join(hashes), dtype="<u8") / 2.0**64


def held_out(ids: pa.Array, fraction: float) -> np.ndarray:
    """bool [documents]: whether each document is in the validation split.

    A document's side depends on its id alone, of one in a group on what follows GROUP in it. A larger
    `fraction` only adds documents to the split.
    """
    if pc.any(grouped := pc.match_like(ids, f"{'_' * 32}{GROUP}%")).as_py():
        ids = pc.if_else(grouped, pc.utf8_slice_codeunits(ids, 33), ids)
    return share_of(ids, "validation") < fraction
