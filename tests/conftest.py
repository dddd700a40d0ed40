"""How tests are shared out (`pytest -n 2 --dist loadgroup`), which may be skipped, what several use."""

import json
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers import Handler, Server, serving

if TYPE_CHECKING:
    from pipeline.store.engines.ray import RayEngine
    from tests.integration.project import Project
    from tests.ray_cluster import RayCluster
    from tests.s3_server import S3

Report = pytest.TestReport | pytest.CollectReport


# What a machine may lack, or has. Any other skip fails `make test-all`, which installs what the tests need.
MAY_LACK = (
    "a GPU writes in bf16",
    "no CPU build of PyTorch",
    "no CUDA GPU",
    "no Azurite",
    "no Triton",
    "no Slurm",
    "no chromium",
    "no file system",
    "no lid.176.ftz",
    "no huge pages",
    "no network",
    "no sample corpora",
)


def pytest_configure() -> None:
    # A developer's own recipe and store, as README exports them, are not those of a test.
    for name in ("GROUNDWORK_RECIPE", "GROUNDWORK_STORE"):
        os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="fail what is skipped, unless the machine lacks something"
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Report, Report]:
    return without_skip((yield), collector.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Report, Report]:
    return without_skip((yield), item.config)


def without_skip(report: Report, config: pytest.Config) -> Report:
    """Failed, if it was skipped for a reason that `make test-all` does not accept."""
    if config.getoption("--no-skips") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(MAY_LACK):
            report.outcome, report.longrepr = "failed", f"skipped, though no skip is allowed: {reason}"
    return report


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, for the sake of their fixtures; those of a project that has run, which
    takes a minute, across files.
    """
    for item in items:
        shared = {"finished", "trained_folder"} & {*getattr(item, "fixturenames", ())}
        group = min(shared, default=item.nodeid.partition("::")[0])
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> "Project":
    """A project whose job ran to its end."""
    from tests.integration.project import make_project  # only some tests need what it imports

    project = make_project(tmp_path_factory.mktemp("finished"))
    project.make()
    return project


@pytest.fixture(scope="module")
def server() -> "Iterator[S3]":
    """An S3 server for all tests of a file."""
    from tests.s3_server import serving  # only some tests need what it imports

    with serving() as server:
        yield server


@pytest.fixture
def s3_environment(server: "S3", monkeypatch: pytest.MonkeyPatch) -> None:
    """This process knows the server and no other."""
    from tests.s3_server import use

    use(server, monkeypatch)


@pytest.fixture(scope="module")
def cluster() -> "Iterator[RayCluster]":
    """A Ray cluster of three nodes for all tests of a file."""
    pytest.importorskip("ray")
    from tests.ray_cluster import started

    with started() as cluster:
        yield cluster


@pytest.fixture
def engine(cluster: "RayCluster") -> "Iterator[RayEngine]":
    from tests.ray_cluster import engine_on

    engine = engine_on(cluster.address)
    yield engine
    engine.close()


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that keeps what it is sent; /refuse answers 500."""
    received: list[dict[str, str]] = []

    class Webhook(Handler):
        def asked(self) -> None:
            received.append(json.loads(self.sent()))
            self.answer(500 if self.path.startswith("/refuse") else 204)

    with serving(Server(Webhook)) as server:
        yield server.url, received
