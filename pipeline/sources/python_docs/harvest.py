"""Documentation read from Python modules into batches, module by module in a fair order, up to a number of
bytes.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pipeline.sources.documents import Batches, Document
from pipeline.sources.ids import own_id
from pipeline.sources.metadata import metadata_json
from pipeline.sources.python_docs.docstrings import described
from pipeline.sources.rejects import Reason

ENOUGH = 0.95  # of a cap: parsing all the rest for what still fits would cost more than it gives


def take(
    file: str, documents: Iterable[Document], batches: Batches, max_bytes: int | None, enough: float = 1.0
) -> Iterator[pa.RecordBatch]:
    """Whole documents of at most `max_bytes` together, one that does not fit passed over; no more are asked
    for at `enough` of that.
    """
    used = 0
    for document in documents:
        if max_bytes is not None and used >= enough * max_bytes:
            break
        if max_bytes is None or used + len(document.text.encode(errors="replace")) <= max_bytes:
            used += batches.add(file, document)
            yield from batches.full()
    yield from batches.rest()


def module_documents(module: str, source: bytes, origin: str, batches: Batches) -> Iterator[Document]:
    """The documents of a module, with ids `module:name`; a module that does not parse is set aside."""
    try:
        for found in described(source, module):
            metadata = metadata_json({"module": module, "name": found.name})
            yield Document(
                own_id(f"{module}:{found.name}"), found.text, None, origin, None, metadata, own_id=True
            )
    except (SyntaxError, ValueError) as error:
        where = error.lineno if isinstance(error, SyntaxError) else None
        batches.reject(
            f"{origin}/{module}",
            where,
            Reason.NOT_PYTHON,
            error.msg if isinstance(error, SyntaxError) else str(error),
        )


def module_name(path: str) -> str:
    """`json/__init__.py` -> `json`, `json/decoder.py` -> `json.decoder`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
