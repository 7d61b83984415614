"""Memory that leaves a GPU: trainings whose state and arena go and come between steps have the bits of an undisturbed one."""

import pytest
import torch
from torch.nn import functional as F

import regen
from examples.models import build
from regen import _runtime
from regen.share import PackedState, resumable

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BUDGET = 0.8


@pytest.fixture(autouse=True)
def deterministic_kernels():
    torch.backends.cudnn.deterministic = True
    yield
    torch.cuda.empty_cache()


def training(name="resnet50", **options):
    model, (x, y), loss_fn = build(name, tiny="deep", batch=512, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = dict(planner="checkmate", time_limit=1, releasable=True, improve=False, **options)
    return model, optimizer, regen.step(model, loss_fn, optimizer, (x, y), budget=BUDGET, **settings), (x, y)


def everything(model, optimizer):
    state = [*model.state_dict().values(), *(s["momentum_buffer"] for s in optimizer.state.values())]
    return [tensor.detach().cpu().clone() for tensor in state]


def same(left, right):
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right))


def free_bytes():
    torch.cuda.synchronize()
    return _runtime.device_memory("cuda")[1]


def test_a_job_that_leaves_gives_its_bytes_back_and_goes_on_with_the_same_bits():
    model, optimizer, step, batch = training()
    torch.manual_seed(3)
    plain = [step(*batch).item() for _ in range(4)]
    expected = everything(model, optimizer)
    del model, optimizer, step

    model, optimizer, step, batch = training()
    state = PackedState(model, optimizer)
    torch.manual_seed(3)
    losses = []
    for _ in range(4):
        losses.append(step(*batch).item())
        before = free_bytes()
        freed = step.spill() + state.leave()
        assert free_bytes() - before == freed > 0
        state.come_back()
        step.restore()
        assert free_bytes() == before
    assert losses == plain
    assert same(everything(model, optimizer), expected)
    assert step.plan.measured_peak <= step.active.session.budget


def test_a_training_is_resumed_with_the_same_bits(tmp_path):
    def run(path, stops):
        done = 0
        while True:
            model, optimizer, step, batch = training()
            torch.manual_seed(3)
            train = resumable(step, path, every=2)
            while train.steps_done < 6:
                train(*batch)
                done += 1
                if done in stops:
                    break
            train.close()
            if train.steps_done >= 6:
                return everything(model, optimizer), done
            del model, optimizer, step, train

    (disturbed, steps), (plain, _) = run(tmp_path / "a", {3, 6}), run(tmp_path / "b", set())
    assert steps > 6
    assert same(disturbed, plain)


def test_state_moves_to_the_host_as_a_device_and_back():
    model, optimizer, step, batch = training()
    step(*batch)
    state = PackedState(model, optimizer)
    before = everything(model, optimizer)
    state.to("cpu")
    assert all(p.device.type == "cpu" for p in model.parameters())
    assert same(everything(model, optimizer), before)
    F.cross_entropy(model(batch[0].cpu()), batch[1].cpu()).backward()
    state.to("cuda")
    assert all(p.device.type == "cuda" and p.grad.device.type == "cuda" for p in model.parameters())
    step(*batch)
