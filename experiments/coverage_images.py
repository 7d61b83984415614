"""Networks of timm and torchvision under `regen.wrap` on a GPU, bit for bit, from their default configurations with random weights.

    python experiments/coverage_images.py [--only resnet18,vit_tiny_patch16_224] [--device cuda] [--csv FILE]

Like experiments/coverage.py, for packages that the CPU machines of CI do not have. Three steps at each of two budgets, 100 % and 70 % of the range
between the least that works and what keeping everything takes: loss, gradients, buffers and generators must be plain PyTorch's to the last bit.
Kernels are deterministic where PyTorch has such; a network that does not repeat itself in plain PyTorch is counted apart.
"""

import argparse
import copy
import csv
import functools
import importlib
import importlib.metadata
import os
import pathlib
import sys
from collections.abc import Callable

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what PyTorch asks for before it calls cuBLAS deterministic

import torch
from torch.nn import functional as F

import coverage
import regen

NETWORKS = {
    "torchvision": (
        "resnet18", "densenet121", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "swin_t", "regnet_y_400mf", "shufflenet_v2_x1_0", "googlenet"),
    "timm": (
        "vit_tiny_patch16_224", "deit_tiny_patch16_224", "resnetv2_50", "mixer_s32_224", "mobilevit_s", "poolformer_s12", "coatnet_nano_rw_224",
        "tf_efficientnetv2_b0", "xcit_nano_12_p16_224")}
COLUMNS = ["network", "library", "version", "nodes", "islands", "equal_at_100_percent", "equal_at_70_percent"]
FRACTIONS = (1.0, 0.7)
BATCH = 4
Batch = tuple[torch.Tensor, torch.Tensor]


def build(library: str, name: str) -> torch.nn.Module:
    """With random weights."""
    if library == "timm":
        return importlib.import_module("timm").create_model(name, num_classes=10)
    return importlib.import_module("torchvision").models.get_model(name, weights=None, num_classes=10)


def train(model: torch.nn.Module, batches: list[Batch], device: torch.device) -> list[dict[str, torch.Tensor]]:
    """What three steps leave behind."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    coverage.seed_everything(1)
    found = []
    for pictures, labels in batches:
        optimizer.zero_grad()
        returned = model(pictures)
        logits = returned if isinstance(returned, torch.Tensor) else returned[0]  # GoogLeNet's other heads
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        state = {"loss": loss.detach().clone(), "generator": torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()}
        state |= {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        state |= {f"buffer {n}": b.clone() for n, b in model.named_buffers()}
        optimizer.step()
        found.append(state)
    return found


def examine(make: Callable[[], torch.nn.Module], device: torch.device) -> dict[str, str]:
    """The row's columns from `nodes` on."""
    torch.manual_seed(0)
    model = make().to(device).train()
    batches = [(torch.randn(BATCH, 3, 224, 224, device=device), torch.randint(0, 10, (BATCH,), device=device)) for _ in range(coverage.STEPS)]
    theirs = train(copy.deepcopy(model), batches, device)
    again = coverage.difference(train(copy.deepcopy(model), batches, device), theirs)
    if again != "yes":
        return {"nodes": "-", "islands": "", **dict.fromkeys(COLUMNS[-2:], f"plain PyTorch does not repeat itself: {again}")}
    row = {}
    sample = batches[0][:1]
    fit = regen.will_it_fit(copy.deepcopy(model), sample, 1 << 40, reserve=256 << 20, work_limit=coverage.WORK)
    least = fit.least_budget or fit.unplanned
    for column, fraction in zip(COLUMNS[-2:], FRACTIONS, strict=True):
        budget = int(least + fraction * max(0, fit.unplanned - least))
        wrapped = regen.wrap(copy.deepcopy(model), sample, budget, reserve=256 << 20, work_limit=coverage.WORK, improve=False)
        captured = wrapped.regen.entries()[0].captured
        row |= {"nodes": str(len(captured.program["nodes"])), "islands": "; ".join(dict.fromkeys(coverage.short_name(i.name) for i in captured.islands))}
        row[column] = coverage.difference(train(wrapped, batches, device), theirs)
        wrapped.regen.release()
    return row


def append(path: pathlib.Path, row: dict[str, str]) -> None:
    """Adds the row to the file; one that is not there gets a head."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*COLUMNS, *coverage.results_measure.data.PROVENANCE], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names with commas between them")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="add the rows to this file")
    parser.add_argument("--commit", default="", help="for the column of the file (of the tree at hand)")
    parser.add_argument("--machine", default="", help="likewise (this one)")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    device, equal, total = torch.device(arguments.device), 0, 0
    for library, names in NETWORKS.items():
        for name in names:
            if arguments.only and name not in arguments.only.split(","):
                continue
            try:
                found = examine(functools.partial(build, library, name), device)
            except Exception as error:
                found = {"nodes": "-", "islands": "", **dict.fromkeys(COLUMNS[-2:], f"{type(error).__name__}: {str(error)[:200]}")}
            row = {"network": name, "library": library, "version": importlib.metadata.version(library), **found}
            total += 1
            equal += all(row[column] == "yes" for column in COLUMNS[-2:])
            print(" | ".join(row[column] for column in COLUMNS), flush=True)
            if arguments.csv:
                origin = coverage.results_measure.provenance(f"experiments/coverage_images.py --only {name} --csv results/coverage_images.csv")
                append(arguments.csv, row | origin | {key: value for key in ("commit", "machine") if (value := getattr(arguments, key))})
    print(f"{equal} of {total} are bitwise equal at both budgets")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
