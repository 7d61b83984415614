"""`regen.check`: is a wrapped model's step the same as plain PyTorch's, bit for bit?"""

import copy

import torch
from torch.utils._pytree import tree_flatten

from regen._wrap import wrap
from regen.errors import CheckError


def check(model, args, budget=0.5, *, kwargs=None, steps=2, seed=0, **options):
    """Runs copies of `model` plainly and under a plan on the same inputs and random numbers and compares outputs,
    gradients, buffers and the generator's state bit for bit. Returns the plan's report; raises CheckError at the
    first difference. The model itself is not changed."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    kwargs = dict(kwargs or {})
    plain, planned = copy.deepcopy(model).train(), copy.deepcopy(model).train()
    with torch.random.fork_rng():
        wrapped = wrap(planned, args, budget, kwargs=kwargs, **options)
        for step in range(steps):
            expected = one_step(plain, args, kwargs, seed + step)
            found = one_step(wrapped, args, kwargs, seed + step)
            compare(expected, found, step)
    return wrapped.regen.plan


def one_step(model, args, kwargs, seed):
    """Everything a training step leaves behind, by name."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = None
    outputs, _ = tree_flatten(model(*args, **kwargs))
    tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
    differentiable = [o for o in tensors if o.requires_grad]
    # Any gradient will do as long as it is not the same for all elements.
    torch.autograd.backward(differentiable, [ramp(o) for o in differentiable])
    left = {f"output {i}": o.detach().clone() for i, o in enumerate(tensors)}
    left.update({f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    left.update({f"buffer {n}": b.clone() for n, b in model.named_buffers()})
    left["generator state"] = generator_state(model)
    return left


def ramp(tensor):
    count = max(tensor.numel(), 1)
    values = torch.linspace(-1, 1, count, device=tensor.device, dtype=torch.float32).to(tensor.dtype)
    return values[: tensor.numel()].view(tensor.shape)


def generator_state(model):
    device = next(model.parameters()).device
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def compare(expected, found, step):
    for name in expected:
        if name not in found:
            raise CheckError(f"step {step}: {name} is missing, expected {tuple(expected[name].shape)}")
        if not same_bits(expected[name], found[name]):
            raise CheckError(f"step {step}: {name} differs: {difference(expected[name], found[name])}; expected the same bits")
    extra = set(found) - set(expected)
    if extra:
        raise CheckError(f"step {step}: {sorted(extra)[0]} exists only under the plan")


def same_bits(a, b):
    """Bitwise, so that signed zeros and NaNs count too."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(as_bytes(a), as_bytes(b))


def as_bytes(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat


def difference(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{b.dtype} {tuple(b.shape)} found, {a.dtype} {tuple(a.shape)} expected"
    if not a.is_floating_point():
        return f"{int((a != b).sum())} of {a.numel()} elements"
    return f"by up to {float((a.double() - b.double()).abs().max()):.3g} in {int((a != b).sum())} of {a.numel()} elements"
