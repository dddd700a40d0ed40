"""What torch.compile generates for a pretended GPU: the source of each graph, the bytes that its kernels
move, and what its forward pass keeps.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import torch
import torch._inductor.compile_fx as compile_fx
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch._inductor.fx_passes.post_grad as post_grad
import triton
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default}
KERNEL = re.compile(r"^(triton_\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str", re.M | re.S)


@dataclass(frozen=True)
class Graph:
    """A compiled graph. `bytes_moved`: what kernels of Triton read and write, products by cuBLAS apart."""

    source: str
    bytes_moved: int

    @property
    def kernels(self) -> dict[str, str]:
        """The source of each kernel by its name."""
        return dict(KERNEL.findall(self.source))

    @property
    def calls(self) -> list[str]:
        """The kernels and products that the graph launches, in order."""
        return re.findall(r"^\s+(triton_\w+)\.run\(|^\s+(extern_kernels\.\w+)\(", self.source, re.M)


graphs: list[Graph] = []


class _CapturedError(Exception):
    """The code has been generated: nothing could run it."""


def prepare(capability: int) -> None:
    """Call once, before the first compilation."""
    config.fx_graph_cache = False
    config.compile_threads = 1
    config.shape_padding = False
    config.joint_graph_constant_folding = False
    torch._functorch.config.enable_autograd_cache = False
    target = GPUTarget("cuda", capability, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda device=None: 0,
            get_active_torch_device=lambda: torch.device("cuda", 0),
        )
    )
    # These would measure patterns on the GPU.
    joint_graph.lazy_init = _without_gpu(joint_graph.lazy_init)
    post_grad.lazy_init = _without_gpu(post_grad.lazy_init)
    GraphLowering.compile_to_module = _capture


def _without_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **options: Any) -> Any:
        with _no_gpu():
            return function(*arguments, **options)

    return called


@contextmanager
def _no_gpu() -> Any:
    available, torch.cuda.is_available = torch.cuda.is_available, lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = available


def _capture(lowering: GraphLowering) -> None:
    wrapper, _ = lowering.codegen()
    moved = sum(
        node.get_read_write_buffers_sizes()
        for node in lowering.scheduler.nodes
        if "Extern" not in type(node).__name__
    )
    graphs.append(Graph(wrapper.value if hasattr(wrapper, "value") else str(wrapper), moved))
    raise _CapturedError


def backend(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
    """For `torch.compile`: generates code, and computes the shapes of results by the graph itself."""
    return compile_fx.compile_fx(module, inputs, inner_compile=_generated)


def _generated(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    known = len(graphs)
    try:
        compile_fx.compile_fx_inner(module, inputs, **options)
    except Exception:
        if len(graphs) == known:
            raise

    graph = graphs[-1]

    def run(arguments: list[Any]) -> Any:
        with Moved.by(graph):
            return module(*arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Moved(TorchDispatchMode):
    """Counts the bytes that are moved inside: those of each graph that runs, and those of uncompiled
    operations, which read their inputs and write their results once. Products by cuBLAS apart.
    """

    _active: ClassVar[list["Moved"]] = []
    _in_graph: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __enter__(self) -> Self:
        self._active.append(self)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._active.remove(self)
        super().__exit__(*exception)

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # the compiler works inside other modes only

    @classmethod
    @contextmanager
    def by(cls, graph: Graph) -> Iterator[None]:
        for one in cls._active:
            one.total += graph.bytes_moved
        cls._in_graph = True
        yield
        cls._in_graph = False

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        result = operation(*given, **(options or {}))
        if self._in_graph or operation in PRODUCTS:
            return result
        read = {id(one): one for one in tree_leaves((given, options)) if isinstance(one, torch.Tensor)}
        made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        known = {one.untyped_storage()._cdata for one in read.values()}
        if operation._schema.is_mutable or any(one.untyped_storage()._cdata not in known for one in made):
            self.total += sum(one.nbytes for one in (*read.values(), *made))
        return result
