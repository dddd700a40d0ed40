"""The corpora harvested from what is installed: the same every time, of text only, with nothing of the
machine in them.
"""

import functools
import json
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from pipeline.sources import SourceConfig, open_source
from pipeline.sources.errors import SourceError
from pipeline.sources.python_docs.cap import fair_shares
from pipeline.sources.python_docs.distributions import distributions
from pipeline.sources.python_docs.docstrings import described
from pipeline.sources.rejects import Rejected
from pipeline.sources.source import Source
from pipeline.store.params import DOCUMENT_SCHEMA

CAP = 300_000
KINDS = ("stdlib_docs", "library_docs", "package_readmes")


def opened(kind: str, **config: Any) -> Source:
    return open_source("c", TypeAdapter(SourceConfig).validate_python({"kind": kind, **config}))


def table(source: Source, rejects: list[Rejected]) -> pa.Table:
    return pa.Table.from_batches(
        [batch for unit in source.units() for batch in source.read(unit, rejects)], DOCUMENT_SCHEMA
    )


@functools.cache
def harvested(kind: str) -> pa.Table:
    rejects: list[Rejected] = []
    documents = table(opened(kind, max_bytes=CAP), rejects)
    assert rejects == []
    return documents


@pytest.fixture(params=KINDS)
def harvest(request: pytest.FixtureRequest) -> tuple[str, pa.Table]:
    return request.param, harvested(request.param)


def size(documents: pa.Table) -> int:
    return sum(len(text.encode()) for text in documents.column("text").to_pylist())


def test_a_capped_harvest_is_nearly_full_and_never_over(harvest: tuple[str, pa.Table]) -> None:
    assert 0.85 * CAP < size(harvest[1]) <= CAP


def test_ids_are_unique(harvest: tuple[str, pa.Table]) -> None:
    ids = harvest[1].column("id").to_pylist()
    assert len(set(ids)) == len(ids)


def test_no_path_of_this_machine_is_in_any_field(harvest: tuple[str, pa.Table]) -> None:
    here = (str(Path.home()), sys.prefix, sysconfig.get_path("stdlib"), str(Path(__file__).parents[4]))
    for row in harvest[1].to_pylist():
        for name in ("id", "source", "url", "metadata"):
            assert not any(path in (row[name] or "") for path in here if len(path) > 1)
        assert not any(path in row["text"] for path in here if len(path) > 8)


def test_two_harvests_in_two_processes_give_the_same_bytes() -> None:
    code = (
        "import json, sys\nfrom pydantic import TypeAdapter\nfrom pipeline.sources import SourceConfig, "
        "open_source\n"
        "for config in json.loads(sys.argv[1]):\n"
        "    source = open_source('c', TypeAdapter(SourceConfig).validate_python(config))\n"
        "    print(json.dumps([row for unit in source.units() for batch in source.read(unit, []) for row in "
        "batch.to_pylist()]))"
    )
    configs = json.dumps([{"kind": kind, "max_bytes": CAP} for kind in KINDS])
    done = subprocess.run(
        [sys.executable, "-c", code, configs],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        harvested(kind).to_pylist() for kind in KINDS
    ]


def test_a_cap_is_shared_fairly_among_the_libraries() -> None:
    documents = harvested("library_docs").to_pandas()
    shares = documents.groupby("source")["text"].agg(lambda texts: sum(map(len, texts)))
    assert len(shares) > 60
    assert shares.max() < 0.03 * CAP


def test_a_cap_that_does_not_bind_cuts_nothing() -> None:
    for kind in ("library_docs", "package_readmes"):
        packages = ["packaging", "tqdm", "fsspec"]
        assert table(opened(kind, packages=packages, max_bytes=100_000_000), []) == table(
            opened(kind, packages=packages), []
        )


def test_the_closure_is_the_projects_own_without_its_extras() -> None:
    names = set(distributions(None))
    assert {"numpy", "dagster", "torch"} <= names
    assert {"groundwork", "pytest", "hypothesis", "ruff", "mypy"}.isdisjoint(names)


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(SourceError, match="'no-such-package' is not installed"):
        opened("library_docs", packages=["no-such-package"]).units()


@pytest.mark.parametrize("kind", ["library_docs", "package_readmes"])
def test_an_upgrade_is_seen_by_a_process_that_listed_the_package_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "1.0", "It was so.")
    source = opened(kind, packages=["fresh-package"])
    before = source.units()
    assert before == source.units() and any(
        "It was so." in row["text"] for row in table(source, []).to_pylist()
    )
    shutil.rmtree(tmp_path / "fresh_package-1.0.dist-info")
    install(tmp_path, "2.0", "It is so.")
    assert source.units() != before
    assert any("It is so." in row["text"] for row in table(source, []).to_pylist())


@pytest.mark.parametrize(
    ("kind", "record"),
    [("library_docs", "RECORD"), ("package_readmes", "RECORD"), ("library_docs", "SOURCES.txt")],
)
def test_a_listed_file_that_is_gone_is_passed_over(
    kind: str, record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "1.0", "It is there.")
    about = tmp_path / "fresh_package-1.0.dist-info"
    gone, there = ["gone.py", f"{about.name}/LICENSE"], ["fresh_package.py", f"{about.name}/METADATA"]
    (about / "RECORD").unlink()
    comma = ",," if record == "RECORD" else ""  # SOURCES.txt is what an egg has in its place
    (about / record).write_text("".join(f"{place}{comma}\n" for place in gone + there))
    rejects: list[Rejected] = []
    assert any(
        "It is there." in row["text"]
        for row in table(opened(kind, packages=["fresh-package"]), rejects).to_pylist()
    )
    assert rejects == []


def install(site: Path, version: str, says: str) -> None:
    (site / "fresh_package.py").write_text(f'"""{says}"""\n')
    about = site / f"fresh_package-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: fresh-package\nVersion: {version}\n\n{says}\n"
    )
    (about / "RECORD").write_text(f"fresh_package.py,,\n{about.name}/METADATA,,\n{about.name}/RECORD,,\n")


def test_licences_and_descriptions_arrive_under_their_package() -> None:
    documents = table(opened("package_readmes", packages=["numpy"]), []).to_pylist()
    places = [json.loads(row["metadata"])["place"] for row in documents]
    assert places[0] == "description"
    assert any("LICENSE" in place for place in places)
    assert {row["source"].partition("==")[0] for row in documents} == {"numpy"}
    assert documents[0]["url"].startswith("https://")


def test_topics_and_modules_of_the_standard_library_are_there() -> None:
    sources = [json.loads(text) for text in table(opened("stdlib_docs"), []).column("metadata").to_pylist()]
    assert {"pydoc_data.topics:with", "pydoc_data.topics:lambda"} <= {found.get("topic") for found in sources}
    modules = {found.get("module") for found in sources}
    assert {"json.decoder", "asyncio.tasks", "pathlib"} <= modules
    assert not any(module and module.startswith(("test.", "idlelib", "lib2to3")) for module in modules)


def test_a_module_becomes_one_document_and_its_long_objects_others() -> None:
    long = "A sentence that says something about it. " * 12
    source = textwrap.dedent(f'''
        """What the module is for."""
        raise RuntimeError("never imported")
        def short(a, *, b: int = 1) -> str:
            """Says little.

                Indented more.

            Ends.
            """
        def bare(): pass
        class Long(Base):
            """{long}"""
            def method(self):
                """Does it."""
        if x:
            def twice():
                """{long}"""
        else:
            def twice():
                """{long}"""
        ''').encode()
    found = {document.name: document.text for document in described(source, "m.n")}
    assert list(found) == ["", "Long", "twice", "twice#2"]
    assert (
        found[""]
        == "m.n\n\nWhat the module is for.\n\nm.n.short(a, *, b: int=1) -> str\n\nSays little.\n\n    "
        "Indented more.\n\nEnds."
    )
    assert found["Long"] == f"class m.n.Long(Base)\n\n{long.strip()}\n\nLong.method(self)\n\nDoes it."


def test_shares_of_a_cap_are_level_and_add_up() -> None:
    assert fair_shares({"a": 10, "b": 100, "c": 1000}, 210) == {"a": 10, "b": 100, "c": 100}
    assert sum(fair_shares({str(n): n * n for n in range(50)}, 5000).values()) <= 5000
    assert fair_shares({"a": 10, "b": 100}, None) == {"a": 10, "b": 100}
    assert fair_shares({}, 100) == {}
