"""One process or many: who this process is, how a model is spread over all of them, and sums over all.

`torchrun` sets the environment; without it a run is one process. Nothing else in a run asks how many there are.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from bertsmith.errors import BertsmithError, SaidByMainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

__all__ = [
    "Spread",
    "World",
    "gathered",
    "holding_gradients",
    "in_pieces",
    "joined",
    "placed_like",
    "shared_out",
    "spread_model",
]

Spread = Literal["ddp", "fsdp"]
Decided = TypeVar("Decided")
_CPU = torch.device("cpu")
_PATIENCE = timedelta(days=1)  # of processes for the one that evaluates, or reads the files; torch has half an hour


@dataclass(frozen=True)
class World:
    """This process among all: `rank` of `size`, and the device that it works on."""

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def tell(self, value: Any) -> Any:
        """What the main process has, in all of them."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def decide(self, work: Callable[[], Decided]) -> Decided:
        """What the main process finds, in all of them; where it cannot go on, none does, and it alone says why."""
        found: Any = None
        failed: BertsmithError | None = None
        if self.is_main:
            try:
                found = work()
            except BertsmithError as error:
                failed = error
        found, gone = self.tell((found, failed is not None))
        if failed is not None:
            raise failed
        if gone:
            raise SaidByMainError
        return cast("Decided", found)

    def together(self, work: Callable[[], Decided]) -> Decided:
        """What each process makes for itself of the same input; where one cannot, none goes on, and one says why."""
        found: Any = None
        failed: BertsmithError | None = None
        try:
            found = work()
        except BertsmithError as error:
            failed = error
        failures, of_main = self.sum([float(failed is not None), float(failed is not None and self.is_main)])
        if failed is not None and (self.is_main or not of_main):
            raise failed
        if failures:
            raise SaidByMainError
        return cast("Decided", found)

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined() -> Iterator[World]:
    """The world as `torchrun` made it, or a process of its own."""
    cuda = torch.cuda.is_available()
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World(device=torch.device("cuda" if cuda else "cpu"))
        return
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=_PATIENCE)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()


def spread_model(
    model: nn.Module, layers: Sequence[nn.Module], world: World, how: Spread, *, methods: Sequence[str] = ()
) -> nn.Module:
    """The model as the loop calls it. Under `fsdp` each of `layers` is gathered when it is needed, and so is the rest.

    `methods` are those of a layer that are called besides `forward`. One process has nothing to spread, whatever was
    said, so that a run of many can go on in one.
    """
    if world.size == 1:
        return model
    if how == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    for layer in layers:
        fully_shard(layer)
        for method in methods:
            register_fsdp_forward_method(layer, method)
    fully_shard(model, reshard_after_forward=True)  # or its weights would stay others after an evaluation
    return model


def holding_gradients(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Sum gradients over processes only after the last of several parts."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if last else model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return nullcontext()


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whole, on the CPU; all processes must call it."""
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().cpu()


def shared_out(function: Callable[[torch.Tensor], torch.Tensor], items: torch.Tensor) -> torch.Tensor:
    """`function` of all items (n, …), which every process has: each does its share, and all get all."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return function(items)
    size, rank = dist.get_world_size(), dist.get_rank()
    share = -(-len(items) // size)
    mine = items[rank * share : (rank + 1) * share]
    results = items.new_zeros(size * share, *items.shape[1:])
    done = torch.zeros_like(results[:share])
    if len(mine):
        done[: len(mine)] = function(mine)
    dist.all_gather_into_tensor(results, done)
    return results[: len(items)]


def in_pieces(model: nn.Module) -> bool:
    """Whether no process has all of it."""
    return any(isinstance(weight, DTensor) for weight in model.parameters())


def placed_like(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """A whole tensor, spread over processes as another one is."""
    if isinstance(model, DTensor):
        return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)
    return tensor.to(model.device)
