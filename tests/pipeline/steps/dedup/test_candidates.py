"""Documents are linked as their keys say, in however many parts, ranges and rounds; files in number and size
stay in proportion to the documents.
"""

import resource
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.stages import dedup
from pipeline.steps.dedup import candidates, components, shuffle
from pipeline.steps.dedup.signatures import RUN_SCHEMA
from pipeline.store.engines.local import LocalEngine
from pipeline.store.files import Files, Scratch, StoredFile
from trainer.system.open_files import allow_enough

ENGINE = LocalEngine(workers=1)
Part = Sequence[Sequence[int]]  # the keys of each document in each run

parts = st.lists(
    st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), max_size=9), min_size=1, max_size=12
)


def spread(key: int) -> int:
    """Keys are hashes: they lie anywhere."""
    return key * 0x9E3779B97F4A7C15 % (1 << 64)


def written(folder: Path, found: Sequence[Part]) -> list[candidates.PartRun]:
    runs, start = [], 0
    for number, part in enumerate(filter(None, found)):
        path = folder / f"part-{number}.arrow"
        with pa.ipc.new_file(str(path), RUN_SCHEMA) as writer:
            for run in range(3):
                keys = np.array([spread(3 * keys[run] + run) for keys in part], np.uint64)
                keys, rows = dedup.sort_band(keys, np.arange(len(part)))
                writer.write_batch(pa.record_batch([keys, rows.astype(np.uint32)], schema=RUN_SCHEMA))
        runs.append((StoredFile(path, Files(folder)), start))
        start += len(part)
    return runs


def linked(folder: Path, found: Sequence[Part]) -> dict[int, int]:
    """The smallest row of the component of each document with company."""
    total = sum(map(len, found))
    scratch, documents = Scratch(folder, Files(folder), apart=False), components.Documents.of(total)
    links = candidates.candidates(ENGINE, scratch, documents, written(folder, found), 3)
    files = components.components(ENGINE, scratch, documents, links)
    labels: dict[int, int] = {}
    for start in range(0, total, 5):
        rows, roots = documents.read(*documents.labels(files, start, min(5, total - start)))
        labels |= dict(zip(rows.tolist(), roots.tolist(), strict=True))
    return labels


def expected(found: Sequence[Part]) -> dict[int, int]:
    documents = [keys for part in found for keys in part]
    parents = np.arange(len(documents))
    for run in range(3):
        first: dict[int, int] = {}
        for row, keys in enumerate(documents):
            center = first.setdefault(keys[run], row)
            dedup.unite(parents, np.array([center]), np.array([row]))
    roots = dedup.labels(parents)
    return {row: int(roots[row]) for row in dedup.linked(roots).tolist()}


@contextmanager
def sizes(range_keys: int, together: int, files: int, bits: int, range_bits: int) -> Iterator[None]:
    """Tasks as small as these corpora, so that there are several of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (candidates, components, shuffle):
            for name, value in {"BITS": bits, "FILES": files, "TOGETHER": together}.items():
                patch.setattr(module, name, value, raising=False)
        patch.setattr(candidates, "RANGE_KEYS", range_keys)
        patch.setattr(components, "DOCUMENTS_TOGETHER", range_keys)
        patch.setattr(components, "RANGE_BITS", range_bits)
        yield


some_sizes = st.builds(
    sizes,
    st.integers(1, 40),
    st.sampled_from([48, 100, 900]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 3),
)


@settings(deadline=None, max_examples=8, phases=[Phase.generate])
@given(parts, some_sizes)
def test_links_do_not_depend_on_parts_ranges_files_or_rounds(
    found: list[Part], small: AbstractContextManager[None]
) -> None:
    are_as_keys_say(found, small)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(parts, some_sizes)
def test_links_of_many_more_corpora_are_as_their_keys_say(
    found: list[Part], small: AbstractContextManager[None]
) -> None:
    are_as_keys_say(found, small)


def are_as_keys_say(found: list[Part], small: AbstractContextManager[None]) -> None:
    with small, TemporaryDirectory() as folder:
        assert linked(Path(folder), found) == expected(found)


def test_a_chain_through_all_ranges_is_one_component(tmp_path: Path) -> None:
    chain = [[[number, (number + 1) // 2 * 2 + 1000, 3000 + number // 2 * 2]] for number in range(200)]
    with sizes(10, 900, 4, 2, 3):
        assert linked(tmp_path, chain) == dict.fromkeys(range(200), 0)


def test_many_parts_need_few_open_files(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(list(Path("/proc/self/fd").iterdir()))  # of the tests before
    resource.setrlimit(resource.RLIMIT_NOFILE, (there + 300, limits[1]))
    try:
        assert linked(tmp_path, [[[number // 2] * 3] for number in range(600)]) == {
            number: number // 2 * 2 for number in range(600)
        }
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_low_soft_limit_of_open_files_is_raised_to_what_is_needed(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        allow_enough()
        assert len(linked(tmp_path, [[[number // 2] * 3] for number in range(200)])) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
