"""Functions of the model that may become islands: those that are running when the trace meets what it cannot write down."""

import contextlib
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from regen._capture.trace_errors import REGEN_FOLDER, TORCH_FOLDER
from regen._islands.surroundings import differ, foreign_states
from regen.errors import CaptureError

DRAWN_ELSEWHERE = "the forward pass draws random numbers from Python's or NumPy's generator; expected torch's (or none)"
TRACE = os.path.join(REGEN_FOLDER, "_capture", "traced", "passes.py")


class NeedsIsland(CaptureError):
    """Something that cannot be part of a program, but can run beside it.

    Attributes:
        functions: of the model's code that were running, from the innermost.
    """

    def __init__(self, message: str, functions: "list[Place] | None" = None) -> None:
        super().__init__(message)
        self.functions = functions


class DrawsElsewhere(NeedsIsland):
    """Random numbers of Python or NumPy; which function draws them is found by watching."""


class Surprised(NeedsIsland):
    """The sample leads an island elsewhere than what was known when it was traced.

    Attributes:
        samples: (function, number of its call) -> its arguments with the sample.
    """

    def __init__(self, samples: dict[Any, list[torch.Tensor]], functions: "list[Place] | None" = None) -> None:
        super().__init__("an island does not do the same twice with one batch; expected functions that do", functions)
        self.samples = samples


class Place(NamedTuple):
    """A function that can be put in the place of another.

    Attributes:
        kind: "method" of the module at `path`, under `name`; "global": of a Python module, whose names are `holder`.
    """

    kind: str
    path: str
    name: str
    holder: Any = None

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.path}.{self.name}".lstrip(".") if self.kind == "method" else self.name

    def key(self) -> tuple[Any, ...]:
        return self.kind, self.path, self.name, id(self.holder)


def running_functions(model: torch.nn.Module) -> list[Place]:
    """Of the model's code, from the innermost to the forward pass of the model itself."""
    return functions_around(model, sys._getframe(1))


def functions_in(error: BaseException, model: torch.nn.Module) -> list[Place]:
    """As functions_around(), of the frames that an error has left."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    traced = max((i for i, frame in enumerate(frames) if frame.f_code.co_filename == TRACE), default=-1)
    return places_of(model, frames[:traced:-1])


def functions_around(model: torch.nn.Module, frame: FrameType | None) -> list[Place]:
    frames: list[FrameType] = []
    while frame is not None and frame.f_code.co_filename != TRACE:
        frames.append(frame)
        frame = frame.f_back
    return places_of(model, frames)


def places_of(model: torch.nn.Module, frames: Sequence[FrameType]) -> list[Place]:
    """Of frames from the innermost."""
    paths = {id(m): path for path, m in reversed(list(model.named_modules()))}
    found: list[Place] = []
    for frame in frames:
        place = place_of(frame, paths) if takes_tensor(frame) else None
        if place is not None and all(place.key() != other.key() for other in found):
            found.append(place)
    return found


def takes_tensor(frame: FrameType) -> bool:
    """Among its arguments. A function without any is never an island."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    given = [value for name, value in frame.f_locals.items() if name in code.co_varnames[:count]]
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(given))


def place_of(frame: FrameType, paths: dict[int, str]) -> Place | None:
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    if isinstance(owner, torch.nn.Module) and id(owner) in paths:
        name = method_name(owner, code)
        if name is not None:
            return Place("method", paths[id(owner)], name)
    filename = code.co_filename
    if TORCH_FOLDER in filename or filename.startswith(REGEN_FOLDER) or frame.f_back is None:
        return None
    return global_place(frame.f_back, code) or attribute_place(frame.f_back, code, paths)


def method_name(owner: torch.nn.Module, code: CodeType) -> str | None:
    """Under which name a module has a function; decorators may be around it."""
    if code.co_name.startswith("__") or code.co_name in ("_call_impl", "_wrapped_call_impl"):
        return None
    function = vars(owner).get(code.co_name) or getattr(type(owner), code.co_name, None)
    return code.co_name if has_code(function, code) else None


def has_code(function: Any, code: CodeType) -> bool:
    while function is not None:
        function = getattr(function, "__func__", function)
        if getattr(function, "__code__", None) is code:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def global_place(caller: FrameType, code: CodeType) -> Place | None:
    """A function that its caller finds among the names of its Python module."""
    if has_code(caller.f_globals.get(code.co_name), code) and is_users(caller):
        return Place("global", "", code.co_name, caller.f_globals)
    return None


def attribute_place(caller: FrameType, code: CodeType, paths: dict[int, str]) -> Place | None:
    """A function that is an attribute of a module, as the loss function of a step."""
    owner = caller.f_locals.get(caller.f_code.co_varnames[0]) if caller.f_code.co_argcount else None
    if not isinstance(owner, torch.nn.Module) or id(owner) not in paths:
        return None
    name = next((n for n, value in vars(owner).items() if inspect.isfunction(value) and value.__code__ is code), None)
    return None if name is None else Place("method", paths[id(owner)], name)


def is_users(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return TORCH_FOLDER not in filename and not filename.startswith(REGEN_FOLDER)


def alike(model: torch.nn.Module, place: Place) -> list[Place]:
    """The same method of all modules of a class: what one of them does, others will."""
    if place.kind != "method" or not place.path:
        return [place]
    kind = type(model.get_submodule(place.path))
    return [place._replace(path=path) for path, module in model.named_modules() if type(module) is kind]


@contextlib.contextmanager
def in_place(model: torch.nn.Module, places: list[Place], wrap: Callable[[Place, Callable[..., Any], torch.nn.Module | None], Any]) -> Iterator[None]:
    """Calls of these functions go to what `wrap` makes of them."""
    with contextlib.ExitStack() as stack:
        for place in places:
            owner = model.get_submodule(place.path) if place.kind == "method" else None
            names = place.holder if owner is None else vars(owner)
            original = names[place.name] if owner is None else getattr(owner, place.name)
            had = place.name in names
            before = names.get(place.name)
            names[place.name] = functools.wraps(original)(wrap(place, original, owner))
            stack.callback(put_back, names, place.name, had, before)
        yield


def put_back(names: dict[str, Any], name: str, had: bool, before: Any) -> None:
    if had:
        names[name] = before
    else:
        names.pop(name, None)


class ForeignDraws:
    """Finds the function that draws from Python's or NumPy's generator, by looking at them whenever a function of the user's returns."""

    def __init__(self, model: torch.nn.Module, in_island: Callable[[], bool]) -> None:
        """`in_island`: does one run? Those may draw."""
        self.model, self.in_island = model, in_island
        self.paths = {id(m): path for path, m in reversed(list(model.named_modules()))}
        self.before = foreign_states()

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        """Ends the trace at the function."""
        if event != "return" or self.in_island() or not is_users(frame) or frame.f_code.co_filename.startswith("<"):
            return
        if differ(self.before, foreign_states()) and place_of(frame, self.paths) is not None:
            sys.setprofile(None)
            raise DrawsElsewhere(DRAWN_ELSEWHERE, functions_around(self.model, frame))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.getprofile()
        self.before = foreign_states()
        sys.setprofile(self.look)
        try:
            yield
        finally:
            sys.setprofile(before)
