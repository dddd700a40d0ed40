"""Work on full matrices, shared out over the processes that hold them.

Each matrix has one owner. It collects the parts of the matrix, which may be split, and gives its result back:
to each process the part that belongs to what that process holds.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.dtensor import in_one_copy, is_split, local_slices

# The matrices that each process owns, by its rank in the group.
Owned = Sequence[Sequence[Tensor]]
Pairs = list[tuple[Tensor, Tensor]]
PartsOf = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def owners(matrix: Tensor, group: dist.ProcessGroup | None, dtype: torch.dtype) -> "_Copies | _Parts":
    """Owners for matrices that are split as `matrix` is over the processes of `group`, None for a single
    one. They exchange parts and results in `dtype`.
    """
    if group is not None and group.size() > 1 and is_split(matrix):
        return _Parts(group, dtype, matrix.device)
    return _Copies(group, dtype)


def dealt(matrices: Sequence[Tensor], cost: Callable[[Tensor], int], loads: list[int]) -> list[list[Tensor]]:
    """Deals matrices out to as many owners as there are `loads`, the costliest first, each to the owner with
    the least work, and adds that work to `loads`. The same on all processes.
    """
    owned: list[list[Tensor]] = [[] for _ in loads]
    for matrix in sorted(matrices, key=cost, reverse=True):
        owner = min(range(len(loads)), key=loads.__getitem__)
        loads[owner] += cost(matrix)
        owned[owner].append(matrix)
    return owned


class _Copies:
    """The processes of a group as owners of matrices. Each holds every matrix in full, so only results are
    sent.

    Both methods are collectives: all processes call them in the same order. Each begins the exchange, and the
    function that it returns waits for the end. The matrices `owned` by one process have one shape.
    """

    def __init__(self, group: dist.ProcessGroup | None, dtype: torch.dtype) -> None:
        self.size, self._rank = (group.size(), group.rank()) if group else (1, 0)
        self._group, self._dtype = group, dtype

    def collect(self, owned: Owned, parts_of: PartsOf) -> Callable[[], Tensor | None]:
        """The matrices that this process owns, in full, [matrices, rows, columns], None if it owns nothing.
        `parts_of` gives this process's parts of several.
        """
        mine = owned[self._rank]

        def collected() -> Tensor | None:
            if not mine:
                return None
            stack = torch.empty(len(mine), *mine[0].shape, dtype=self._dtype, device=mine[0].device)
            torch._foreach_copy_(list(stack), list(parts_of(mine)))
            return stack

        return collected

    def give_back(self, owned: Owned, results: Tensor | None) -> Callable[[], Pairs]:
        """Each matrix with this process's part of its result. `results` [matrices, rows, columns] are those
        of this process, None if it owns nothing.
        """
        sent = [
            (matrices, *self._broadcast(owner, matrices, results))
            for owner, matrices in enumerate(owned)
            if matrices
        ]

        def given() -> Pairs:
            for _, _, work in sent:
                if work is not None:
                    work.wait()
            return [pair for matrices, stack, _ in sent for pair in zip(matrices, stack, strict=True)]

        return given

    def _broadcast(
        self, owner: int, matrices: Sequence[Tensor], results: Tensor | None
    ) -> tuple[Tensor, dist.Work | None]:
        if owner == self._rank:
            assert results is not None
            stack = results.contiguous() if self.size > 1 else results
        else:
            stack = matrices[0].new_empty((len(matrices), *matrices[0].shape), dtype=self._dtype)
        if self.size == 1:
            return stack, None
        return stack, dist.broadcast(stack, group=self._group, group_src=owner, async_op=True)


class _Parts:
    """As _Copies, where each process holds a part of every matrix. Of several copies of the model, a matrix
    is collected within that of its owner.
    """

    def __init__(self, group: dist.ProcessGroup, dtype: torch.dtype, device: torch.device) -> None:
        self.size, self._rank, self._group = group.size(), group.rank(), group
        self._dtype, self._device = dtype, device

    def collect(self, owned: Owned, parts_of: PartsOf) -> Callable[[], Tensor | None]:
        mine = owned[self._rank]
        sources = [
            [number for number, matrix in enumerate(mine) if in_one_copy(matrix, source, self._rank)]
            for source in range(self.size)
        ]
        arrive = self._exchange(
            [
                parts_of([matrix for matrix in matrices if in_one_copy(matrix, self._rank, owner)])
                for owner, matrices in enumerate(owned)
            ],
            [
                [local_slices(mine[number], source) for number in numbers]
                for source, numbers in enumerate(sources)
            ],
        )

        def collected() -> Tensor | None:
            parts = iter(arrive())
            if not mine:
                return None
            stack = torch.empty(len(mine), *mine[0].shape, dtype=self._dtype, device=self._device)
            for source, numbers in enumerate(sources):
                for number in numbers:
                    stack[number][local_slices(mine[number], source)] = next(parts)
            return stack

        return collected

    def give_back(self, owned: Owned, results: Tensor | None) -> Callable[[], Pairs]:
        made = [] if results is None else list(zip(owned[self._rank], results, strict=True))
        arrive = self._exchange(
            [[result[local_slices(matrix, rank)] for matrix, result in made] for rank in range(self.size)],
            [[local_slices(matrix, self._rank) for matrix in matrices] for matrices in owned],
        )
        return lambda: list(zip(chain.from_iterable(owned), arrive(), strict=True))

    def _exchange(
        self, sent: Sequence[Sequence[Tensor]], expected: list[list[tuple[slice, ...]]]
    ) -> Callable[[], list[Tensor]]:
        """Sends tensors to each process, and receives from each tensors of the size of `expected` slices, in
        the order of the processes.
        """
        shapes = [[[axis.stop - axis.start for axis in slices] for slices in each] for each in expected]
        sizes = [[math.prod(shape) for shape in each] for each in shapes]
        leaving = [tensor.flatten() for each in sent for tensor in each]
        outgoing = torch.empty(sum(map(len, leaving)), dtype=self._dtype, device=self._device)
        if leaving:
            torch._foreach_copy_(list(outgoing.split([len(tensor) for tensor in leaving])), leaving)
        incoming = outgoing.new_empty(sum(map(sum, sizes)))
        work = dist.all_to_all_single(
            incoming,
            outgoing,
            [sum(each) for each in sizes],
            [sum(tensor.numel() for tensor in each) for each in sent],
            group=self._group,
            async_op=True,
        )

        def arrived() -> list[Tensor]:
            work.wait()
            pieces = incoming.split([size for each in sizes for size in each])
            return [
                piece.view(shape) for piece, shape in zip(pieces, chain.from_iterable(shapes), strict=True)
            ]

        return arrived
