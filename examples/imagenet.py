"""Image classification in the manner of PyTorch's ImageNet script, under a byte budget.

    python examples/imagenet.py --steps 20                                  # generated pictures, a small ResNet-18
    python examples/imagenet.py /data/imagenet -a resnet50 --full -b 256 --budget 10GiB --epochs 90
    python examples/imagenet.py --resume checkpoint.pt --evaluate

The folder has `train` and `val` with a folder of pictures for each class (needs torchvision to read them)."""

import argparse
import os
import time

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from common import add_budget_options, finish, size, wrap
from examples.models import FAMILIES, build

ARCHITECTURES = [name for family in ("plain", "residual", "depthwise", "inception", "dense") for name in FAMILIES[family] if name != "mlp"]


def main():
    options = read_options()
    torch.manual_seed(options.seed)
    model, (sample, _), _ = build(options.arch, tiny=size(options), batch=options.batch_size)
    model = model.to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    first_epoch, best = resume(options.resume, model, optimizer, schedule, options.device) if options.resume else (0, 0.0)
    training, validation = loaders(options, sample.shape)
    if options.evaluate:
        print(f"accuracy {validate(model, validation, options.device):.2%}")
        return
    model = wrap(model, (sample.to(options.device),), options)
    for epoch in range(first_epoch, options.epochs):
        train(model, training, optimizer, epoch, options)
        schedule.step()
        accuracy = validate(model, validation, options.device)
        print(f"epoch {epoch}: accuracy {accuracy:.2%}")
        best = max(best, accuracy)
        save(options.checkpoint, epoch + 1, best, model, optimizer, schedule)
    finish(model, options)


def train(model, training, optimizer, epoch, options):
    model.train()
    begin = time.time()
    for step, (x, y) in enumerate(training):
        if step == options.steps:
            break
        x, y = x.to(options.device, non_blocking=True), y.to(options.device, non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.print_every == 0:
            print(f"epoch {epoch} step {step}: loss {loss.item():.4f}, {(step + 1) * len(x) / (time.time() - begin):.1f} pictures/s")


@torch.no_grad()
def validate(model, validation, device):
    model.eval()
    right = count = 0
    for x, y in validation:
        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
        count += len(y)
    return right / count


def loaders(options, shape):
    if options.data is None:
        generator = torch.Generator().manual_seed(options.seed)
        return [DataLoader(generated(n, shape, generator), options.batch_size, shuffle=shuffle) for n, shuffle in (
            (options.batch_size * max(1, options.steps), True), (options.batch_size, False))]
    from torchvision import datasets, transforms  # pyright: ignore[reportMissingImports]

    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    size = shape[-1]
    views = {
        "train": [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()],
        "val": [transforms.Resize(size * 8 // 7), transforms.CenterCrop(size)]}
    return [
        DataLoader(
            datasets.ImageFolder(os.path.join(options.data, part), transforms.Compose([*views[part], transforms.ToTensor(), normalize])),
            options.batch_size, shuffle=part == "train", num_workers=options.workers, pin_memory=options.device == "cuda")
        for part in ("train", "val")]


def generated(count, shape, generator):
    """Pictures whose class is where they are bright, so that there is something to learn."""
    y = torch.randint(10, (count,), generator=generator)
    x = torch.randn(count, *shape[1:], generator=generator)
    rows = torch.arange(shape[-1]) * 10 // shape[-1]
    return TensorDataset(x + 2.0 * (rows[None, :] == y[:, None])[:, None, None, :], y)


def save(path, epoch, best, model, optimizer, schedule):
    state = {"epoch": epoch, "best": best, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def resume(path, model, optimizer, schedule, device):
    state = torch.load(path, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    print(f"resumed {path} at epoch {state['epoch']}")
    return state["epoch"], state["best"]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="folder with train and val; left out: generated pictures")
    parser.add_argument("-a", "--arch", choices=ARCHITECTURES, default="resnet18")
    parser.add_argument("--full", action="store_true", help="the published size and 224 x 224 pictures, not a small one")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help="of each epoch at most; -1: the whole data")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", default="checkpoint.pt", help="written after every epoch")
    parser.add_argument("--resume", metavar="FILE")
    parser.add_argument("--evaluate", action="store_true", help="validate only")
    add_budget_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
