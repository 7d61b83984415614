"""Wraps every block of an example model in torch.utils.checkpoint, as its users do by hand."""

from torch import nn
from torch.utils.checkpoint import checkpoint

BLOCK_CLASSES = ("Bottleneck", "PreNormBlock", "InvertedResidual", "Inception")


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *args):
        return checkpoint(self.block, *args, use_reentrant=False)


def checkpoint_blocks(model):
    """Replaces the blocks in place and returns how many there are."""
    kind = type(model).__name__
    if kind == "Vgg16":
        model.features = split_at_pools(model.features)
    blocks = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()
              if type(child).__name__ in BLOCK_CLASSES or is_block(kind, parent, name, child)]
    for parent, name, child in blocks:
        parent._modules[name] = Checkpointed(child)
    return len(blocks)


def is_block(kind, parent, name, child):
    """The double convolutions of a U-Net and the stages of a VGG are plain sequences."""
    if kind == "UNet":
        return isinstance(child, nn.Sequential)
    return kind == "Vgg16" and isinstance(parent, nn.Sequential) and isinstance(child, nn.Sequential)


def split_at_pools(layers):
    """One sequence for each stage, its pooling included."""
    stages = [[]]
    for layer in layers:
        stages[-1].append(layer)
        if isinstance(layer, nn.MaxPool2d):
            stages.append([])
    return nn.Sequential(*(nn.Sequential(*stage) for stage in stages if stage))
