"""`python -m trainer predict`: rows of token ids and what is none."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainer.__main__ import main


@pytest.mark.usefixtures("trainer_environment")
def test_a_file_that_holds_no_rows_is_refused_without_the_advice_to_trust_it(
    finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", "--model", str(finished_once), "--prompt", "2"]
    np.save(tmp_path / "rows.npy", np.array([[2, 5, 6, 7], [2, 9, 9, 9]]))
    assert main([*command, str(tmp_path / "rows.npy")]) == 0
    assert [json.loads(line).keys() for line in capsys.readouterr().out.splitlines()] == [
        {"loss", "recites"}
    ] * 2
    whole = (tmp_path / "rows.npy").read_bytes()
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "many.npz", rows=np.zeros((2, 3), np.int64))
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npy").write_bytes(whole[:-8])
    for name in ("objects.npy", "many.npz", "texts.jsonl", "empty.npy", "cut.npy"):
        assert main([*command, str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert f"trainer: {tmp_path / name}: cannot be read as rows of token ids" in said
        assert "pickle" not in said.replace("allow_pickle=False", "")
