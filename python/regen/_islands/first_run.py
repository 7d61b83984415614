"""The first call of an island, while its model is traced: what comes out of the function, and what else it does."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regen._capture.arguments import described
from regen._islands.call import IslandCall, Layout, Ran
from regen._islands.held import Held
from regen._islands.surroundings import differ, foreign_states
from regen.errors import CaptureError


def first_run(call: IslandCall, inputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> Ran:
    """On contents of any kind: what comes out of the function, and what else it does. Nothing of it lasts."""
    devices = [call.device] if call.device.type == "cuda" else []
    with call.untouched(), torch.random.fork_rng(devices):
        before = call.generators(), foreign_states()
        versions = [(slot, slot.tensor._version) for slot in call.parameters]
        attributes = None if call.owner is None else plain_attributes(call.owner)
        touched = Touched()
        ran = call.run(inputs, buffers, Held(None, {}, [s.tensor for s in call.parameters], call.device), touched)
        call.draws = not all(map(torch.equal, before[0], call.generators()))
        call.draws_on_host = len(before[0]) > 1 and not torch.equal(before[0][0], call.generators()[0])
        call.parameters = [s for s in call.parameters if not call.narrow or s.tensor.untyped_storage()._cdata in touched.storages]
        call.draws_elsewhere = differ(before[1], foreign_states())
        call.changes_modules = call.owner is not None and attributes != plain_attributes(call.owner)
        if any(slot.tensor._version != version for slot, version in versions):
            raise CaptureError(f"island {call.name} changes a parameter in place; expected parameters that only the optimizer changes")
    call.written, call.written_buffers = ran.written
    call.results = [Layout.of(t) for t in ran.results]
    call.differentiable = [e is not None for e in ran.edges]
    call.assigned, call.objects = ran.assigned, ran.returned.objects
    check_apart(call, ran)
    check_objects(call)
    return ran


class Touched(TorchDispatchMode):
    """Notes the memory that operators take."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any operator."""
        self.storages |= {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def check_apart(call: IslandCall, ran: Ran) -> None:
    """Results are copied to their places, so none may be a view of another tensor that is still to be written to."""
    known = {t.untyped_storage()._cdata for t in (*ran.passed, *ran.stand_ins, *(s.tensor for s in call.parameters))}
    outs = ran.results[:len(ran.results) - len(call.written) - len(call.written_buffers)]
    for out in outs:
        if out.layout is not torch.strided or out.device != call.device:
            raise CaptureError(f"island {call.name} returns a tensor on {out.device} of layout {out.layout}; expected dense tensors on {call.device}")
        if out.untyped_storage()._cdata in known:
            raise CaptureError(f"island {call.name} returns a view of its argument or of another result; expected tensors of their own (.clone())")
        known.add(out.untyped_storage()._cdata)


def check_objects(call: IslandCall) -> None:
    """Objects that the function was given must not hold tensors now: these would lie in memory that is used for other things."""
    for position, *_ in call.spec.objects:
        seen = described(call.flat[position])
        if seen is not None and seen[1]:
            raise CaptureError(
                f"island {call.name} keeps tensors in an object of {type(call.flat[position]).__name__} that it is given; expected functions that "
                "return their tensors")


def plain_attributes(owner: torch.nn.Module) -> list[tuple[int, str, Any]]:
    """What Python code may count with."""
    return [
        (id(m), key, value if isinstance(value, (bool, int, float, str)) else id(value)) for m in owner.modules() for key, value in vars(m).items()]
