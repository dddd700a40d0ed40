"""What of a machine decides the last bits of weights is recorded, and told apart."""

import os
from pathlib import Path

import pytest

from trainer.system import machine
from trainer.system.machine import differences

XEON = """processor\t: 0
model name\t: Some Xeon
flags\t\t: fpu sse2 avx2 fma avx512f avx512bw amx_tile amx_bf16

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\n"


@pytest.mark.parametrize(
    ("cpuinfo", "instructions"),
    [
        (XEON, ["avx2", "fma", "avx512f", "avx512bw", "amx_tile", "amx_bf16"]),
        (ARM, ["asimd", "bf16", "sve"]),
        ("", []),
    ],
)
def test_the_instructions_are_those_that_kernels_are_chosen_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: str, instructions: list[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    found = machine.machine(2, "cpu")
    assert found["instructions"] == instructions
    assert (found["threads"], found["device"]) == (2, "cpu")


def test_threads_instructions_and_limits_of_them_make_a_difference_and_names_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    here = machine.machine(2, "cpu")
    assert differences(here, machine.machine(2, "cpu")) == []
    assert differences({**here, "processor": "another of its kind"}, here) == []
    assert differences(here, machine.machine(1, "cpu")) == ["threads 2 then, 1 now"]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert differences(here, machine.machine(2, "cpu")) == ["limits none then, ONEDNN_MAX_CPU_ISA=AVX2 now"]
    assert "ONEDNN_MAX_CPU_ISA" in os.environ
