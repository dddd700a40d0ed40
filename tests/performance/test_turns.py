"""Contenders of a benchmark that run step by step, each in a process of its own."""

import importlib
import sys

import pytest

from tests.integration.project import ROOT


def test_a_contender_that_ends_before_its_turn_is_named_with_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "performance"), *sys.path])
    turns = importlib.import_module("harness.turns")
    # The first one's step lasts until the second has ended.
    slow = "import time; from harness.turns import Turns; t = Turns(); t.next(); time.sleep(2); t.next()"
    contenders = {
        "slow": ((sys.executable, "-c", slow), {}),
        "broken": ((sys.executable, "-c", "raise SystemExit(3)"), {}),
    }
    with pytest.raises(SystemExit, match="broken ended with status 3"):
        turns.take_turns(contenders, 0, 1)
