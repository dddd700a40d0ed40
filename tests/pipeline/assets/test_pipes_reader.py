"""The messages of a trainer arrive whole, however slowly they are written."""

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.assets.pipes_reader import TrainerMessages, whole_lines


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1), max_size=5),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_lines_are_read_whole_wherever_writing_pauses(
    tmp_path_factory: Any, lines: list[str], pauses: list[int]
) -> None:
    path = tmp_path_factory.mktemp("messages") / "messages.jsonl"
    written = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted({0, len(written), *(pause for pause in pauses if pause < len(written))})
    pieces = [written[begin:end] for begin, end in itertools.pairwise(cuts)]
    path.write_bytes(b"")

    def closed() -> bool:  # asked before each look: so the file is seen in every state
        if not pieces:
            return True
        with path.open("ab") as file:
            file.write(pieces.pop(0))
        return False

    assert [line.decode() for line in whole_lines(path, closed)] == lines


def test_a_message_that_is_read_half_written_is_not_lost(tmp_path: Path) -> None:
    """As on a machine so busy that the writer rests in the middle of a line."""

    @dg.op
    def follow(context: dg.OpExecutionContext) -> list[Any]:
        reader = TrainerMessages(tmp_path / "messages.jsonl")
        with dg.open_pipes_session(context, dg.PipesEnvContextInjector(), reader) as session:
            writer = threading.Thread(target=_write_slowly, args=(tmp_path / "messages.jsonl",))
            writer.start()
            writer.join()
        return list(session.get_custom_messages())

    @dg.job
    def job() -> None:
        follow()

    assert job.execute_in_process().output_for_node("follow") == [{"step": 1}, {"step": 2}]


def _write_slowly(path: Path) -> None:
    messages = [
        {"method": "opened", "params": {"extras": {}}},
        *({"method": "report_custom_message", "params": {"payload": {"step": step}}} for step in (1, 2)),
        {"method": "closed", "params": {}},
    ]
    for message in messages:
        line = json.dumps({"__dagster_pipes_version": "0.1"} | message)
        for piece in (line[:40], line[40:] + "\n"):
            with path.open("a") as file:
                file.write(piece)
            time.sleep(0.2)
