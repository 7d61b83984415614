"""`regen.check`: is a wrapped model's step the same as plain PyTorch's, bit for bit?"""

import copy
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from regen._capture.traced.outputs import loss_of
from regen._session.report import PlanReport
from regen._session.wrapped_module import GRADIENT_CHUNK
from regen._wrap import wrap
from regen.errors import CheckError, OptionError
from regen.options import Algorithms, Budget, Cache, Link, Size, refuses_old_names

HINT = ". If plain PyTorch gives the same twice (torch.use_deterministic_algorithms(True)), please report this"


@refuses_old_names
def check(
    model: torch.nn.Module,
    args: Any,
    budget: Budget = 0.5,
    *,
    kwargs: Mapping[str, Any] | None = None,
    steps: int = 2,
    seed: int = 0,
    gradient_chunk: int = GRADIENT_CHUNK,
    group: Any = "default",
    reserve: Size | None = None,
    planner: str = "auto",
    host_budget: Size | None = None,
    time_limit: float = 0.0,
    work_limit: int = 0,
    improve: bool | float | None = None,
    plan_file: str | os.PathLike[str] | None = None,
    link: Link | None = None,
    cache: Cache = None,
    algorithms: Algorithms = "default",
    cuda_graphs: bool = False,
    releasable: bool = False,
    quantum: float = 1e-3,
    debug: bool = False,
) -> PlanReport:
    """Compares a wrapped module with plain PyTorch: outputs, gradients, buffers and random numbers, bit for bit.

    Copies of the model are run plainly and under a plan on the same inputs and random numbers. The model itself is not changed.

    Args:
        model: the module.
        args: a sample input.
        budget: bytes of the device as in `regen.wrap`.
        kwargs: further sample inputs by name.
        steps: how many steps are compared.
        seed: of the first step's random numbers.
        gradient_chunk: as in `regen.wrap`.
        group: as in `regen.wrap`.
        reserve: as in `regen.wrap`.
        planner: name of the planner, or several with commas between them: the best plan counts.
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        improve: search for a better plan while the steps run: True (20 s), False, or seconds; None: True on a GPU.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole.
        releasable: the arena's memory can be given back and taken again: `spill()`, `restore()`.
        quantum: of a job that shares its device: seconds of work, at most, before it gives way to another job (or two ops).
        debug: fill released memory with nonsense and check where every result lies.

    Returns:
        What the plan decided.

    Raises:
        CheckError: at the first difference.
        BudgetError: no plan keeps the budget.
        CaptureError: the model or its inputs cannot be captured.
        OptionError: an option has a value that is not expected.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OptionError(f"steps={steps!r}; expected how many steps are compared, 1 or more")
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    named = dict(kwargs or {})
    plain, planned = copy.deepcopy(model).train(), copy.deepcopy(model).train()
    with torch.random.fork_rng():
        wrapped = wrap(
            planned, args, budget, kwargs=named, gradient_chunk=gradient_chunk, group=group, reserve=reserve, planner=planner,
            host_budget=host_budget, time_limit=time_limit, work_limit=work_limit, improve=improve, plan_file=plan_file, link=link,
            cache=cache, algorithms=algorithms, cuda_graphs=cuda_graphs, releasable=releasable, quantum=quantum, debug=debug)
        for step in range(steps):
            expected = one_step(plain, args, named, seed + step)
            found = one_step(wrapped, args, named, seed + step)
            compare(expected, found, step)
    return wrapped.regen.plan


def one_step(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Everything a training step leaves behind, by name."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = None
    returned = model(*args, **kwargs)
    outputs, _ = tree_flatten(returned)
    tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
    loss = loss_of(returned)
    differentiable = [o for o in tensors if o.requires_grad] if loss is None else [loss]
    # Any gradient will do as long as it is not the same for all elements.
    torch.autograd.backward(differentiable, [ramp(o) for o in differentiable])
    left = {f"output {i}": o.detach().clone() for i, o in enumerate(tensors)}
    left.update({f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    left.update({f"buffer {n}": b.clone() for n, b in model.named_buffers()})
    left["generator state"] = generator_state(model)
    return left


def ramp(tensor: torch.Tensor) -> torch.Tensor:
    count = max(tensor.numel(), 1)
    values = torch.linspace(-1, 1, count, device=tensor.device, dtype=torch.float32).to(tensor.dtype)
    return values[: tensor.numel()].view(tensor.shape)


def generator_state(model: torch.nn.Module) -> torch.Tensor:
    device = next(model.parameters()).device
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def compare(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor], step: int) -> None:
    for name in expected:
        if name not in found:
            raise CheckError(f"step {step}: {name} is missing, expected {tuple(expected[name].shape)}{HINT}")
        if not same_bits(expected[name], found[name]):
            raise CheckError(f"step {step}: {name} differs: {difference(expected[name], found[name])}; expected the same bits{HINT}")
    extra = set(found) - set(expected)
    if extra:
        raise CheckError(f"step {step}: {sorted(extra)[0]} exists only under the plan, expected none{HINT}")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bitwise, so that signed zeros and NaNs count too."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(as_bytes(a), as_bytes(b))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat


def difference(a: torch.Tensor, b: torch.Tensor) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{b.dtype} {tuple(b.shape)} found, {a.dtype} {tuple(a.shape)} expected"
    if not a.is_floating_point():
        return f"{int((a != b).sum())} of {a.numel()} elements"
    return f"by up to {float((a.double() - b.double()).abs().max()):.3g} in {int((a != b).sum())} of {a.numel()} elements"
