"""Optimizers as people write them: with @torch.no_grad and plain operators."""

import torch


class Written(torch.optim.Optimizer):
    """Updates each parameter by itself."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, self.state[parameter], group["lr"])


class Lion(Written):
    def update(self, p, grad, state, lr):
        p.data.mul_(1 - lr * 0.1)
        if len(state) == 0:
            state["exp_avg"] = torch.zeros_like(p)
        average = state["exp_avg"]
        p.add_(average.clone().mul_(0.9).add(grad, alpha=0.1).sign_(), alpha=-lr)
        average.mul_(0.99).add_(grad, alpha=0.01)


class CountsItself(Written):
    """Keeps a number of its own."""

    count = 0

    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.count += 1
        super().step(closure)

    def update(self, p, grad, state, lr):
        p -= lr / self.count * grad.sign()


class ReplacesState(Written):
    """Counts with a Python number, makes state of a shape, and puts new tensors in place of old ones."""

    def update(self, p, grad, state, lr):
        if not state:
            state["step"], state["mean"], state["square"] = 0, torch.zeros(p.shape), torch.zeros_like(p)
        state["step"] += 1
        state["mean"] = 0.9 * state["mean"] + 0.1 * grad
        state["square"].mul_(0.99).addcmul_(grad, grad, value=0.01)
        p.addcdiv_(state["mean"] / (1 - 0.9 ** state["step"]), (state["square"] / (1 - 0.99 ** state["step"])).sqrt() + 1e-8, value=-lr)


class ByShape(Written):
    """What it does depends on the shape."""

    def update(self, p, grad, state, lr):
        if p.dim() == 2:
            p.sub_(grad @ grad.T @ grad, alpha=lr / p.size(0))
        else:
            p.add_(grad, alpha=-lr)


class TrustRatio(Written):
    """Keeps a number that is computed from gradients."""

    def update(self, p, grad, state, lr):
        if not state:
            state["largest"] = torch.zeros_like(grad.norm())
        norm = grad.norm()
        state["largest"] = torch.maximum(state["largest"], norm)
        p.sub_(grad * torch.where(norm > 0, p.norm() / (state["largest"] + 1e-6), 1.0), alpha=lr)


class Changes(Written):
    """Does something else from its third step on."""

    def update(self, p, grad, state, lr):
        state["step"] = state.get("step", 0) + 1
        if state["step"] >= 3:
            grad = grad.clamp(-0.01, 0.01)
        p.sub_(grad, alpha=lr)


class FirstGradient(Written):
    """Its state begins as a gradient."""

    def update(self, p, grad, state, lr):
        if "momentum" not in state:
            state["momentum"] = grad.clone()
        else:
            state["momentum"].mul_(0.9).add_(grad)
        p.add_(state["momentum"], alpha=-lr)


class ReadsValues(Written):
    def update(self, p, grad, state, lr):
        p.sub_(grad, alpha=lr / (1 + p.norm().item()))


class GlobalNorm(Written):
    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            p.sub_(0.01 * p.grad / norm)


class Noisy(Written):
    def update(self, p, grad, state, lr):
        p.sub_(grad + 0.01 * torch.randn_like(p), alpha=lr)


class TellsNeighbours(Written):
    """A parameter's update depends on which parameter it is."""

    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for index, p in enumerate(group["params"]):
                p.sub_(p.grad.sign() if index % 2 else p.grad, alpha=group["lr"])


class KeepsATable(Written):
    """Its state is in a dictionary of its own."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, lr)
        self.averages = {}

    def update(self, p, grad, state, lr):
        average = self.averages[id(p)] = 0.9 * self.averages.get(id(p), 0.0) + grad
        p.sub_(average, alpha=lr)


class Wraps(torch.optim.Optimizer):
    """As accelerate's does."""

    def __init__(self, params):
        self.inner = torch.optim.Adam(params)

        self.state, self.param_groups, self.defaults = self.inner.state, self.inner.param_groups, self.inner.defaults

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict)
        self.state, self.param_groups = self.inner.state, self.inner.param_groups

    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.inner.step()


PLANNED = [Lion, CountsItself, ReplacesState, ByShape]
FIRST_STEP_DIFFERS = [FirstGradient, TrustRatio, Changes]
ISLANDS = [ReadsValues, GlobalNorm, Noisy, TellsNeighbours, KeepsATable, Wraps]
