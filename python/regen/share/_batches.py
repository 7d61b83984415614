"""The batches of a dataset from any position on: what a producer reads."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from regen.errors import OptionError, OptionTypeError


class _Items(IterableDataset):
    """Anything that can be iterated, for a DataLoader."""

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self.source)


class Batches:
    """The same arguments give the same order of indices for each epoch, in whatever process."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        num_workers: int,
        collate_fn: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.seed = seed
        self.drop_last = bool(drop_last)
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.ready_made = isinstance(dataset, DataLoader)
        iterable = isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"))
        self.map_style = not self.ready_made and not iterable
        if not (self.map_style or hasattr(dataset, "__iter__")):
            raise OptionTypeError(f"regen.share.loader: dataset is a {type(dataset).__name__}, expected items by index or iteration")
        if shuffle and not self.map_style:
            raise OptionError("regen.share.loader: shuffle is True, expected False for a dataset that is iterated")

    def settings(self) -> dict[str, Any]:
        """What jobs that share the input must agree on."""
        kind = type(self.dataset)
        return {
            "dataset": f"{kind.__module__}.{kind.__qualname__}",
            "length": len(self.dataset) if self.map_style else None,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }

    def at(self, epoch: int, index: int) -> Iterator[Any]:
        """An iterator over the batches of the epoch from `index` on."""
        mixed = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        torch.manual_seed(torch.randint(2**62, (), generator=mixed).item())
        random.seed(self.seed * 1_000_003 + epoch)
        if self.ready_made:
            if hasattr(self.dataset.sampler, "set_epoch"):
                self.dataset.sampler.set_epoch(epoch)
            return itertools.islice(iter(self.dataset), index, None)
        shared = {"num_workers": self.num_workers, "collate_fn": self.collate_fn, "generator": mixed}
        if not self.map_style:
            dataset = self.dataset if isinstance(self.dataset, IterableDataset) else _Items(self.dataset)
            drop = {"drop_last": self.drop_last} if self.batch_size is not None else {}
            return itertools.islice(iter(DataLoader(dataset, batch_size=self.batch_size, **drop, **shared)), index, None)
        order = torch.randperm(len(self.dataset), generator=mixed).tolist() if self.shuffle else list(range(len(self.dataset)))
        if self.batch_size is None:
            return iter(DataLoader(self.dataset, batch_size=None, sampler=order[index:], **shared))
        count = number_of_batches(self) or 0
        groups = [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(index, count)]
        return iter(DataLoader(self.dataset, batch_sampler=groups, **shared))


def number_of_batches(batches: Batches) -> int | None:
    """In an epoch; None where only reading shows it."""
    if batches.ready_made:
        try:
            return len(batches.dataset)
        except TypeError:
            return None
    if not batches.map_style:
        return None
    if batches.batch_size is None:
        return len(batches.dataset)
    whole, rest = divmod(len(batches.dataset), batches.batch_size)
    return whole + (1 if rest and not batches.drop_last else 0)
