"""Data-parallel training: every rank takes the same plan, and gradients are reduced while the backward pass runs.

    torchrun --nproc-per-node 2 examples/ddp.py --steps 10
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 examples/ddp.py -a resnet50 --full --budget 20GiB

(docs/how-to/distributed.md)"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from common import add_budget_options, finish, size, wrap
from examples.models import build


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-a", "--arch", default="resnet18")
    parser.add_argument("-b", "--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--full", action="store_true", help="the published size, not a small one")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    add_budget_options(parser)
    options = parser.parse_args()
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    if options.device == "cuda":
        options.device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(options.device)
    train(options)
    gc.collect()  # what still holds the group goes before it: gloo's threads must not outlive the interpreter
    dist.destroy_process_group()


def train(options):
    torch.manual_seed(0)  # the same model everywhere
    model, (sample, _), _ = build(options.arch, tiny=size(options), batch=options.batch_size)
    wrapped = wrap(model.to(options.device), (sample.to(options.device),), options)
    model = DistributedDataParallel(wrapped)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())  # other pictures everywhere
    for step in range(options.steps):
        x, y = torch.randn(sample.shape, generator=generator), torch.randint(10, (len(sample),), generator=generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(options.device)), y.to(options.device))
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}")
    if dist.get_rank() == 0:
        finish(wrapped, options)


if __name__ == "__main__":
    main()
