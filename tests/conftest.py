"""How the tests are shared out among processes (`pytest -n 2 --dist loadgroup`)."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, for the sake of their fixtures; those of the finished project, which
    takes a minute to make, across files.
    """
    for item in items:
        group = (
            "finished" if "finished" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
        )
        item.add_marker(pytest.mark.xdist_group(group))
