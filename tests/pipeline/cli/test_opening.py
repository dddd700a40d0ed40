"""What commands take as a text."""

import os

import pytest

from pipeline.cli.opening import UsageError, text_of


def test_a_pipe_is_read_as_a_file_is() -> None:
    """`forget <(grep ...)` of bash names one."""
    reading, writing = os.pipe()
    os.write(writing, "one\nzwölf\n".encode())
    os.close(writing)
    assert text_of(f"/dev/fd/{reading}") == "one\nzwölf\n"
    os.close(reading)


@pytest.mark.parametrize("named", ["/dev/null", "/dev/zero"])
def test_what_exists_and_is_no_file_is_not_said_to_be_missing(named: str) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        text_of(named)
