"""What generated kernels take of a GPU: `machine_code.py CAPABILITY FOLDER < kernels.json` compiles each to
its machine code and prints JSON, for each name the bytes of shared memory of a block of threads and, for each
thread, registers and the bytes that did not fit into them. A kernel that does not compile ends the process.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import triton
from torch._inductor.runtime import triton_helpers, triton_heuristics
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
KINDS = ("pointwise", "reduction", "persistent_reduction", "template")
# The largest blocks that inductor tries, where it leaves the choice to a measurement.
BLOCKS = {"XBLOCK": 1, "YBLOCK": 16, "R0_BLOCK": 2048, "RSPLIT": 1, "RSPLIT_SIZE": 64, "NUM_STAGES": 1}

decorated: list[tuple[Any, str, dict[str, Any]]] = []


def _recording(kind: str) -> Any:
    def decorator(*_: Any, **settings: Any) -> Any:
        def record(function: Any) -> Any:
            decorated.append((function, kind, settings))
            return function

        return record

    return decorator


def taken(source: str, capability: int, folder: Path) -> dict[str, int]:
    path = folder / f"kernel_{len(decorated)}.py"  # Triton reads the source of a function from its file
    path.write_text(source.replace("\\\\", "\\"))
    exec(compile(path.read_text(), path, "exec"), {"__name__": "kernel", "__file__": str(path)})
    function, kind, settings = decorated[-1]
    meta = settings["triton_meta"]
    signature, constants = dict(meta["signature"]), dict(meta.get("constants", {}))
    for name, kept in signature.items():
        if kept == "constexpr" and name not in constants:
            constants[name] = 256 if kind == "pointwise" and name == "XBLOCK" else BLOCKS.get(name, 1)
    attributes = dict(next(iter(meta.get("configs") or [{}])))
    compiled = compile_kernel(
        ASTSource(
            function,
            signature,
            {(function.arg_names.index(name),): value for name, value in constants.items()},
            attributes,
        ),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": settings.get("num_warps", 8), "num_stages": settings.get("num_stages", 1)},
    )
    binary = path.with_suffix(".cubin")
    binary.write_bytes(compiled.asm["cubin"])
    usage = subprocess.run(
        [CUOBJDUMP, "--dump-resource-usage", binary], check=True, capture_output=True, text=True
    ).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return {
        "shared": compiled.metadata.shared,
        "registers": found["REG"],
        "spilled": found["STACK"] + found["LOCAL"],
    }


def main(capability: int, folder: Path) -> None:
    triton_helpers.set_driver_to_gpu = lambda: None
    for kind in KINDS:
        setattr(triton_heuristics, kind, _recording(kind))
    kernels = json.load(sys.stdin)
    print(json.dumps({name: taken(source, capability, folder) for name, source in kernels.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
