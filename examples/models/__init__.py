"""Models to try things on: `build(name)` gives a model, its arguments and its loss.

    model, args, loss_fn = build("resnet50")           # tiny: a step takes milliseconds on a CPU
    model, args, loss_fn = build("resnet50", tiny=False, batch=64, device="cuda")
    *inputs, target = args
    loss = loss_fn(model(*inputs), target)

Tiny models have the structure of the full ones, with few channels and layers. Sizes of the full ones are those of the
publications; batches are what fills a large card.
"""

import torch

from . import registry

FAMILIES = registry.FAMILIES


def names():
    return [name for members in FAMILIES.values() for name in members]


def build(name, tiny=True, batch=None, device="cpu", seed=0):
    """(model, args, loss_fn), the same for the same seed. The last of `args` is the target. With `tiny="deep"` the model is
    small but has more layers. Takes the relatives of registry.py, too."""
    recipe = next((members[name] for members in (*FAMILIES.values(), registry.RELATIVES) if name in members), None)
    if recipe is None:
        raise ValueError(f"no model named {name!r}; expected one of {', '.join([*names(), *registry.RELATIVES])}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with torch.device(device):
            return recipe(tiny, batch)
