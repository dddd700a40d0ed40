"""The corpora harvested from installed packages: always the same, only text, nothing of the machine."""

import functools
import json
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
from pipeline.sources.docstrings import described
from pipeline.sources.source import Reason, Rejected, Source, SourceError
from pipeline.store.params import DOCUMENT_SCHEMA

CAP = 150_000
CONFIG = {"kind": "python_docs", "packages": ["python", "numpy"], "max_bytes": CAP}


def opened(**config: Any) -> Source:
    config = {"kind": "python_docs", **config}
    return open_source("c", TypeAdapter(SourceConfig).validate_python(config))


def table(source: Source, rejects: list[Rejected]) -> pa.Table:
    return pa.Table.from_batches(
        [batch for unit in source.units() for batch in source.read(unit, rejects)], DOCUMENT_SCHEMA
    )


@functools.cache
def harvested() -> list[dict[str, str]]:
    rejects: list[Rejected] = []
    documents = table(opened(**CONFIG), rejects)
    assert rejects == []
    return documents.to_pylist()


def test_each_package_fills_its_cap_nearly_and_never_over() -> None:
    for package in CONFIG["packages"]:
        texts = [row["text"] for row in harvested() if row["source"].partition("==")[0] == package]
        assert 0.85 * CAP < sum(len(text.encode()) for text in texts) <= CAP


def test_ids_are_unique() -> None:
    ids = [row["id"] for row in harvested()]
    assert len(set(ids)) == len(ids)


def test_no_path_of_this_machine_is_in_any_field() -> None:
    here = (str(Path.home()), sys.prefix, sysconfig.get_path("stdlib"), str(Path(__file__).parents[3]))
    for row in harvested():
        for name in ("id", "source", "url", "metadata"):
            assert not any(path in (row[name] or "") for path in here if len(path) > 1)
        assert not any(path in row["text"] for path in here if len(path) > 8)


def test_a_harvest_in_another_process_gives_the_same_documents() -> None:
    code = (
        "import json, sys\nfrom pydantic import TypeAdapter\nfrom pipeline.sources import SourceConfig, "
        "open_source\n"
        "source = open_source('c', TypeAdapter(SourceConfig).validate_python(json.loads(sys.argv[1])))\n"
        "print(json.dumps([row for unit in source.units() for batch in source.read(unit, []) for row in "
        "batch.to_pylist()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(CONFIG)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert json.loads(done.stdout) == harvested()


def test_the_standard_library_is_there_without_its_tests_and_what_is_installed_beside_it() -> None:
    documents = table(opened(), []).column("metadata").to_pylist()
    modules = {json.loads(text)["module"] for text in documents}
    assert {"json.decoder", "asyncio.tasks", "pathlib"} <= modules
    assert not any(module.startswith(("test.", "idlelib", "lib2to3", "numpy")) for module in modules)


@pytest.mark.parametrize("name", ["no_such_package", "typing_extensions"])  # the second is a module
def test_a_package_that_is_not_installed_is_named(name: str) -> None:
    with pytest.raises(SourceError, match=f"no package '{name}' is installed"):
        opened(packages=[name]).units()


def test_an_upgrade_is_seen_and_what_is_not_python_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "fresh_package"
    (package / "tests").mkdir(parents=True)
    (package / "tests" / "__init__.py").write_text('"""Not read."""\n')
    (package / "__init__.py").write_text('"""It was so."""\n')
    (package / "broken.py").write_text("def (\n")
    source, rejects = opened(packages=["fresh_package"]), list[Rejected]()
    before = source.units()
    assert before == source.units()
    assert table(source, rejects).column("text").to_pylist() == ["fresh_package\n\nIt was so."]
    assert [(one.file, one.row, one.reason) for one in rejects] == [
        ("fresh_package/fresh_package.broken", 1, Reason.NOT_PYTHON)
    ]
    (package / "__init__.py").write_text('"""It is so."""\n')
    assert source.units() != before
    assert table(source, []).column("text").to_pylist() == ["fresh_package\n\nIt is so."]


def test_a_package_is_read_again_with_another_python_whose_grammar_knows_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = opened(packages=["yaml"]).units()
    monkeypatch.setattr("platform.python_version", lambda: "99.0.0")
    assert opened(packages=["yaml"]).units() != before


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
    found = dict(described(source, "m.n"))
    assert list(found) == ["", "Long", "twice", "twice#2"]
    assert (
        found[""]
        == "m.n\n\nWhat the module is for.\n\nm.n.short(a, *, b: int=1) -> str\n\nSays little.\n\n    "
        "Indented more.\n\nEnds."
    )
    assert found["Long"] == f"class m.n.Long(Base)\n\n{long.strip()}\n\nLong.method(self)\n\nDoes it."
