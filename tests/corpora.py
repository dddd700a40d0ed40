"""The sample corpora. They lie beside the checkout, and are no part of the project."""

from pathlib import Path

import pytest

CORPORA = Path(__file__).parents[2] / "shared" / "corpora"
needs_corpora = pytest.mark.skipif(
    not CORPORA.is_dir(), reason="no sample corpora: they would be in ../shared/corpora"
)
