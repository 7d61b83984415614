"""The options of `regen.step`, `regen.wrap`, `regen.share.infer` and of the backend of `torch.compile`."""

import dataclasses
import functools
import os
from collections.abc import Callable
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from regen.errors import OptionError, OptionTypeError

Budget: TypeAlias = int | float | str | None
"""Bytes as text ("6GiB", "500MB") or as a number, a fraction of the unplanned peak (0.5), "auto" (what is free on the device), or None:
what the job of `regen share run` was admitted with."""
Size: TypeAlias = int | float | str
"""Bytes as a number or as text."""
Link: TypeAlias = tuple[float, float, float]
"""Bytes per second to the host, to the device, and both together."""
Cache: TypeAlias = str | os.PathLike[str] | Literal[False] | None
"""A folder; None: that of REGEN_CACHE, or ~/.cache/regen; False: nothing is kept."""
Algorithms: TypeAlias = Literal["default", "any"]

Check: TypeAlias = tuple[tuple[type, ...], Callable[[Any], bool], str]

# Options of version 0.1 under the names that they have now.
RENAMED = {"capture": "cuda_graphs", "window": "quantum"}

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def refuses_old_names(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """`function`, which refuses an option by its former name in one line that has the present one."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        for old, new in RENAMED.items():
            if old in kwargs:
                raise OptionTypeError(f"{function.__name__}({old}=...): the option is called '{new}' now, expected {new}={kwargs[old]!r}")
        return function(*args, **kwargs)

    return call


def is_link(value: Any) -> bool:
    numbers = [] if value is None else list(value)
    return value is None or (len(numbers) == 3 and all(isinstance(n, Real) and not isinstance(n, bool) and 0 < float(n) < float("inf") for n in numbers))


SWITCH: Check = (bool,), lambda value: True, "True or False"
# What options may be: types, a test of the value, and words for people. Of those that are not named here other code says it.
EXPECTED: dict[str, Check] = {
    "planner": ((str,), lambda value: all(value.split(",")), "the name of a planner such as 'auto', or several with commas between them"),
    "time_limit": ((Real,), lambda value: 0 <= value < float("inf"), "seconds, 0 or more"),
    "work_limit": ((Integral,), lambda value: 0 <= value < 1 << 63, "a whole number, 0 or more"),
    "plan_file": ((str, os.PathLike, NoneType), lambda value: True, "the path of a file that save_plan() has written, or None"),
    "link": ((tuple, list, NoneType), is_link, "three numbers above 0: bytes per second to the host, to the device and both together; or None"),
    "cache": ((str, os.PathLike, bool, NoneType), lambda value: value is not True, "a folder, None or False"),
    "cuda_graphs": SWITCH,
    "releasable": SWITCH,
    "debug": SWITCH,
}


class BackendOptions(TypedDict, total=False):
    """The options of `torch.compile(model, backend="regen", options={...})`: those of `regen.wrap`. `budget` must be there."""

    budget: Budget
    gradient_chunk: int
    group: Any
    reserve: Size | None
    planner: str
    host_budget: Size | None
    time_limit: float
    work_limit: int
    improve: bool | float | None
    plan_file: str | os.PathLike[str] | None
    link: Link | None
    cache: Cache
    algorithms: Algorithms
    cuda_graphs: bool
    releasable: bool
    quantum: float
    debug: bool


@dataclasses.dataclass
class Options:
    """How a step is planned and run. The functions of regen take these by name.

    Args:
        budget: bytes of the device that the whole step may use (see `Budget`).
        planner: name of the planner, or several with commas between them: the best plan counts.
        reserve: bytes of the budget for what the caller holds beside a wrapped module; None: measured while training.
        host_budget: bytes of the host for tensors that are moved there; 0: none are moved; None: no limit.
        time_limit: seconds for the first plan; 0: 5 s, or 1 s where a search runs beside the training.
        work_limit: counted work for the first plan, which gives the same plan on every machine; 0: not counted.
        improve: search for a better plan while the steps run: True, False, or for so many seconds; None: on a GPU.
        plan_file: a plan that was written by `save_plan`, in place of a search.
        link: bytes per second to the host, to the device and both together; None: measured.
        cache: folder for measurements and plans; None: REGEN_CACHE or ~/.cache/regen; False: none.
        algorithms: "default": those of plain PyTorch, so its bits; "any": faster or smaller ones too.
        cuda_graphs: on a GPU, launch stretches that are the same in every step as a whole (CUDA graphs).
        releasable: the arena's memory can be given back and taken again: `spill()`, `restore()`.
        quantum: of a job that shares its device: seconds of work on it, at most, before it gives way (or two ops).
        debug: check every address and every wait while the step runs.

    Raises:
        OptionError: a value is not among the expected ones.
    """

    budget: Budget
    planner: str = "auto"
    reserve: Size | None = None
    host_budget: Size | None = None
    time_limit: float = 0.0
    work_limit: int = 0
    improve: bool | float | None = None
    plan_file: str | os.PathLike[str] | None = None
    link: Link | None = None
    cache: Cache = None
    algorithms: Algorithms = "default"
    cuda_graphs: bool = False
    releasable: bool = False
    quantum: float = 1e-3
    debug: bool = False

    def __post_init__(self) -> None:
        for name, (kinds, accepts, expected) in EXPECTED.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise OptionTypeError(f"{name}={value!r}; expected {expected}")
            if not accepts(value):
                raise OptionError(f"{name}={value!r}; expected {expected}")
        if self.algorithms not in ("default", "any"):
            raise OptionError(f"algorithms={self.algorithms!r} found, expected 'default' or 'any'")
        if isinstance(self.quantum, bool) or not isinstance(self.quantum, (int, float)) or not 0 < self.quantum <= 1:
            raise OptionError(f"quantum={self.quantum!r}; expected seconds, above 0 and at most 1")
        good = self.improve is None or isinstance(self.improve, bool) or (
            isinstance(self.improve, (int, float)) and 0 <= self.improve < float("inf"))
        if not good:
            raise OptionError(f"improve={self.improve!r}; expected True, False, or seconds for the search beside the training")


__all__ = ["Algorithms", "BackendOptions", "Budget", "Cache", "Link", "Options", "Size"]
