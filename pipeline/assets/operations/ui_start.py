"""The port and the home of the UI, looked at before Dagster is started, which takes long."""

import argparse
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipeline.store.locks import alone
from trainer.system.errors import TrainerError
from trainer.system.paths import dagster_home


def check_port(arguments: Sequence[str]) -> None:
    """Raises TrainerError if `dagster dev` is given a port that it cannot have. Its webserver would say so
    after half a minute and not end, and its daemon would run without a UI.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-p", "--port", type=int, default=0)
    parser.add_argument("-h", "--host", default="127.0.0.1")
    given, _ = parser.parse_known_args(arguments)
    try:
        socket.create_server((given.host, given.port)).close()
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        remedy = "open the UI that has it, end the program that has it, or give another `--port`"
        raise TrainerError(f"port {given.port} of {given.host}: {why}: {remedy}") from error


@contextmanager
def only_ui() -> Iterator[None]:
    """While this lasts, no other UI of this home starts. Raises TrainerError if one runs: the daemons of both
    would begin what is scheduled.
    """
    with alone((home := dagster_home()) / ".ui.lock") as is_alone:
        if not is_alone:
            what = "another UI of this home runs, and two would begin each scheduled run twice"
            raise TrainerError(f"DAGSTER_HOME {home}: {what}: use that one, or end it")
        yield
