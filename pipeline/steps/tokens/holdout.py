"""Which documents validate the model instead of training it."""

import numpy as np
import pyarrow as pa

from pipeline.stages.tokenizer import share_of


def held_out(ids: pa.Array, fraction: float) -> np.ndarray:
    """bool [documents]: whether each document is in the validation split.

    A document's side depends on its id alone. A larger `fraction` only adds documents to the split.
    """
    return share_of(ids, "validation") < fraction
