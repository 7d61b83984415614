"""Batches of many sizes under a few plans: one capture, one arena.

    SizedShapes   which shapes belong together: the same but for sizes
    SizedSteps    the batches of one capture with symbols (`_capture/sized_capture.py`), and its levels
    Level         a plan for certain sizes, which serves all that are not larger

What holds:
- A batch runs under a plan only if the guards of the capture hold for its sizes, so that its program is the one that tracing it would give.
- No storage of it is larger than planned, so the plan's steps and addresses are valid for it; C++ checks that when it makes the instructions
  (`regen/execute/run/step_sizes.h`).
- The arenas of all levels are one, which the plan of the largest sizes has taken. Plans of smaller sizes are made for what is in it.
"""

import contextlib
import dataclasses
import gc
import json
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

from regen._capture.capture import Captured
from regen._capture.sized_capture import Numbers, SizedCapture, Sizes, sized
from regen._session.job import job
from regen._session.session import Session
from regen.errors import BudgetError, CaptureError, RegenError
from regen.options import Options

# Plans of one capture. Of more, those for the smallest sizes go.
MOST_PLANS = 5
# A plan is made for sizes up to this many times those of the batch that needs it, then for a power of two: longer batches tend to follow.
GROWTH = 4
# Where a plan takes this much longer than keeping everything, smaller sizes get plans of their own.
WORTH_A_PLAN = 0.01
# Captures with symbols that failed for one model, after which no more are tried.
MOST_FAILURES = 3
# Captures of one pattern of shapes, which differ in what the user's code decides from sizes.
MOST_CAPTURES = 4
# Entries for sizes that are kept; making one takes about a millisecond.
MOST_ENTRIES = 1024

Shapes = tuple[tuple[int, tuple[int, ...]], ...]  # (flat input, shape) of each tensor


class SizedEntry(Protocol):
    """What serves the batches of a shape (shape_cache.Shaped), where it can be for several sizes."""

    captured: Captured
    share: Session | None  # whose arena is taken

    @property
    def session(self) -> Session:
        """Plans, and holds the arena while compiled."""
        ...

    def look_for_better_plan(self) -> None:
        """One that a search beside the training has found takes the place of the plan, and is not compiled yet."""

    def make_ready(self) -> None:
        """Takes the arena."""

    def admit(self, flat: Sequence[Any]) -> list[Any] | None:
        """The program's inputs for a batch; None: it needs another capture."""
        ...

    def release(self) -> None:
        """Gives the arena back."""


Entry = TypeVar("Entry", bound=SizedEntry)


class Maker(Protocol[Entry]):
    """Makes entries, for `wrap` or `step`."""

    def level(self, captured: Captured) -> Entry:
        """Recorded, to be planned."""
        ...

    def member(self, steps: "SizedSteps[Entry]", sizes: Sizes, captured: Captured) -> Entry:
        """For batches of other sizes than those of a plan."""
        ...

    def make_room(self) -> None:
        """No other plan holds an arena, or searches."""


@dataclasses.dataclass
class Level(Generic[Entry]):
    """A plan for some sizes."""

    sizes: Sizes
    entry: Entry
    storages: list[tuple[int, int]]  # of the recorded program, for each that varies; its place in Numbers.storages

    def covers(self, sizes: Sizes) -> bool:
        return all(n <= most for n, most in zip(sizes, self.sizes))

    def numbers(self, numbers: Numbers) -> Numbers:
        """With the ids of the recorded program."""
        return numbers._replace(storages=[(recorded, numbers.storages[place][1]) for recorded, place in self.storages])

    @property
    def overhead(self) -> float:
        report = self.entry.session.report
        return 0.0 if report is None else report.overhead


class SizedSteps(Generic[Entry]):
    """The batches of one capture: a few levels, of which the largest has taken the arena."""

    def __init__(
        self, capture: SizedCapture, groups: Sequence[Sequence[tuple[int, int]]], history: Sequence[Shapes], maker: Maker[Entry]
    ) -> None:
        """`history`: shapes of batches so far, the last of them of the sample. Dimensions that are in no group are the same in all of them."""
        self.capture, self.groups, self.maker = capture, groups, maker
        self.fixed = without(history[-1], groups)
        self.most_seen = tuple(max(dict(shapes)[group[0][0]][group[0][1]] for shapes in history) for group in groups)
        self.levels: list[Level[Entry]] = []  # ascending
        self.members: dict[Sizes, Entry] = {}
        self.numbers: dict[Sizes, int] = {}
        self.samples: list[Any] = []  # flat inputs of the batch that a level is made for
        self.too_large: list[Sizes] = []  # for which there was no plan
        self.refused: set[Shapes] = set()  # under whose plan an operator would not run

    # Which batches.

    def sizes_of(self, shapes: Shapes) -> Sizes | None:
        """Of a batch; None: this capture is not for it."""
        if without(shapes, self.groups) != self.fixed or shapes in self.refused:
            return None
        by_input = dict(shapes)
        found = []
        for group in self.groups:
            sizes = {by_input[index][dimension] for index, dimension in group}
            if len(sizes) != 1:
                return None
            found.append(sizes.pop())
        sizes = tuple(found)
        return sizes if self.capture.admits(sizes) else None

    def entry_for(self, sizes: Sizes, flat: Sequence[Any]) -> Entry:
        """Under the smallest plan that is large enough; a larger one is made where there is none."""
        if not any(level.covers(sizes) for level in self.levels):
            self.grow(sizes, flat)
        entry = self.members.get(sizes)
        if entry is None:
            if len(self.members) >= MOST_ENTRIES:
                self.members.pop(next(iter(self.members)))
            with collected_later():
                entry = self.members[sizes] = self.maker.member(self, sizes, self.capture.at(sizes))
        return entry

    def level_for(self, sizes: Sizes) -> Level[Entry]:
        return next(level for level in self.levels if level.covers(sizes))

    # Plans.

    def adopt(self, sizes: Sizes, entry: Entry) -> None:
        """An entry that was made before the capture had symbols."""
        if entry.captured.program == self.capture.at(sizes, complete=True).program:
            self.insert(self.level_of(sizes, entry))

    def take_over(self, old: "SizedSteps[Entry]") -> None:
        """The plans of a capture in which less varies."""
        for level in old.levels:
            sizes = self.sizes_of(old.shapes_at(level.sizes))
            if sizes is not None:
                self.adopt(sizes, level.entry)

    def shapes_at(self, sizes: Sizes) -> Shapes:
        """Of a batch of these sizes."""
        size_of = {place: size for group, size in zip(self.groups, sizes) for place in group}
        return tuple((i, tuple(size_of.get((i, d), n) for d, n in enumerate(shape))) for i, shape in self.fixed)

    def look_ahead(self, flat: Sequence[Any]) -> None:
        """Where lengths vary, longer ones are likely: they are planned while few steps have been made."""
        if not any(self.grows(i) for i in range(len(self.groups))):
            return
        try:
            self.grow(self.most_seen, flat, ahead=True)
        except RegenError:
            self.too_large = []  # it may be tried again when such a batch comes

    def grow(self, sizes: Sizes, flat: Sequence[Any], ahead: bool = False) -> None:
        """A plan for these sizes, and for larger ones that may follow. `ahead`: for larger ones only, where there is a plan for these."""
        if any(all(n >= m for n, m in zip(sizes, failed)) for failed in self.too_large):
            raise BudgetError(f"no plan for batches of sizes {sizes}: there was none for smaller ones; expected smaller batches or a larger budget")
        self.samples = list(flat)
        candidates = self.larger(sizes, ahead)
        if ahead:
            candidates = [wanted for wanted in candidates if not any(level.covers(wanted) for level in self.levels)]
        for wanted in candidates:
            self.release()
            self.maker.make_room()
            try:
                level = self.new_level(wanted)
                level.entry.make_ready()
            except RegenError:  # no plan, or an operator that cannot be recorded for these sizes
                if wanted != candidates[-1]:
                    continue
                self.too_large.append(sizes)
                self.samples = []
                raise
            self.insert(level)
            self.add_smaller(level)
            break
        self.samples = []

    def larger(self, sizes: Sizes, ahead: bool = False) -> list[Sizes]:
        """Sizes that a new plan may be for, the smallest last: those of the batch, and of all before in whatever it does not exceed."""
        sizes = tuple(max(n, seen) for n, seen in zip(sizes, self.most_seen))
        most = tuple(max([n, *(level.sizes[i] for level in self.levels)]) for i, n in enumerate(sizes))
        tried: list[Sizes] = []
        for growth in (GROWTH, GROWTH // 2, 1):
            wanted = tuple(
                max(most[i], self.rounded(i, n, growth)) if ahead or not self.levels or n > max(level.sizes[i] for level in self.levels) else most[i]
                for i, n in enumerate(sizes))
            if wanted not in tried and self.capture.admits(wanted):
                tried.append(wanted)
        return [*tried, *([] if sizes in tried else [sizes])]

    def rounded(self, symbol: int, size: int, growth: int) -> int:
        if growth == 1 or not self.grows(symbol):
            return size
        limit = self.capture.bounds[symbol][1]
        wanted = 1 << math.ceil(math.log2(size * growth))
        return wanted if limit is None else max(size, min(wanted, limit))

    def grows(self, symbol: int) -> bool:
        """The first dimension is most often the batch, which only the end of an epoch makes smaller."""
        return any(dimension > 0 for _, dimension in self.groups[symbol])

    def new_level(self, sizes: Sizes) -> Level[Entry]:
        """Records the step for these sizes, on the batch repeated up to them."""
        captured = self.capture.at(sizes, complete=True)
        storage_of = [value["storage"] for value in captured.program["values"]]
        for index, value in captured.input_values.items():
            if index < len(self.samples) and isinstance(self.samples[index], torch.Tensor):
                shape = captured.program["values"][value]["sizes"]
                captured.tensors[storage_of[value]] = repeated(self.samples[index], shape)
        return self.level_of(sizes, self.maker.level(captured))

    def level_of(self, sizes: Sizes, entry: Entry) -> Level[Entry]:
        """Finds the storages of the recorded program, which has new ones for what operators make."""
        recorded, captured = json.loads(entry.session.program_json()), self.capture.at(sizes).program
        origin: dict[int, int] = {}
        for mine, theirs in zip(recorded["values"], captured["values"]):
            same = all(mine[key] == theirs[key] for key in ("dtype", "sizes", "strides", "offset"))
            if not same or origin.setdefault(mine["storage"], theirs["storage"]) != theirs["storage"]:
                raise CaptureError("the device lays a result out in another way than its description says; expected the same for all sizes")
        places = {storage: place for place, (storage, _) in enumerate(self.capture.storages)}
        for mine, theirs in origin.items():
            if recorded["storages"][mine]["bytes"] != captured["storages"][theirs]["bytes"]:
                raise CaptureError("the device takes other bytes for a result than its description says; expected the same for all sizes")
        return Level(sizes, entry, [(mine, places[theirs]) for mine, theirs in origin.items() if theirs in places])

    def insert(self, level: Level[Entry]) -> None:
        self.levels = sorted([*(other for other in self.levels if other.sizes != level.sizes), level], key=lambda x: x.sizes)
        for gone in self.levels[:-MOST_PLANS]:
            gone.entry.release()
        self.levels = self.levels[-MOST_PLANS:]
        self.members = {}

    def add_smaller(self, top: Level[Entry]) -> None:
        """Plans for the sizes from which on everything can be kept, and for those between: most batches are smaller than the largest."""
        session = top.entry.session
        room = session.budget
        if room is None or top.overhead < WORTH_A_PLAN:
            return
        all_kept = self.largest_kept(top, room)
        if all_kept is None:
            return
        between = tuple(math.isqrt(a * b) for a, b in zip(all_kept, top.sizes))
        for sizes in (all_kept, between):
            if len(self.levels) < MOST_PLANS and self.capture.admits(sizes) and all(level.sizes != sizes for level in self.levels):
                self.try_level(sizes, top)

    def try_level(self, sizes: Sizes, top: Level[Entry]) -> None:
        try:
            level = self.new_level(sizes)
            self.share_room(level, top)
            level.entry.make_ready()
        except RegenError as error:
            warnings.warn(f"regen: batches of sizes {sizes} run under the plan for larger ones, since there is none of their own: {error}", stacklevel=2)
            return
        self.insert(level)

    def largest_kept(self, top: Level[Entry], room: int) -> Sizes | None:
        """The largest sizes for which everything can be kept in the room, all symbols that grow scaled alike."""
        low, high = 0, 64  # in 64ths of the sizes of the plan
        while high - low > 1:
            middle = (low + high) // 2
            sizes = self.scaled(top.sizes, middle)
            if self.capture.admits(sizes) and self.kept_bytes(top, sizes) <= room:
                low = middle
            else:
                high = middle
        return self.scaled(top.sizes, low) if low else None

    def scaled(self, sizes: Sizes, parts: int) -> Sizes:
        return tuple(max(2, n * parts // 64) if self.grows(i) else n for i, n in enumerate(sizes))

    def kept_bytes(self, top: Level[Entry], sizes: Sizes) -> int:
        return top.entry.session.unplanned_bytes_at(*top.numbers(self.capture.numbers_at(sizes)))

    # Running.

    def make_ready(self, sizes: Sizes) -> Level[Entry]:
        """The plan for a batch is compiled, and its instructions are those for the batch's sizes."""
        level, top = self.level_for(sizes), self.levels[-1]
        if level is not top:
            self.make_top_ready(top)
            self.share_room(level, top)
            level.entry.make_ready()
        else:
            self.make_top_ready(top)
        self.use(level, sizes)
        return level

    def make_top_ready(self, top: Level[Entry]) -> None:
        """Whose arena all others have. Of two arenas there would be no room for the second."""
        top.entry.look_for_better_plan()
        session = top.entry.session
        if not session.compiled:
            self.release()
            if session.report is not None and session.fits:
                session.settle()
        top.entry.share = None
        top.entry.make_ready()

    def share_room(self, level: Level[Entry], top: Level[Entry]) -> None:
        """What the top plan leaves of the budget beside its arena is more for smaller sizes, but the arena is as large as it is."""
        mine, its = level.entry.session, top.entry.session
        level.entry.share = its
        room = its.predicted_peak - its.fixed_bytes
        if mine.report is None or mine.predicted_peak - mine.fixed_bytes > room:
            mine.limit_budget(room + mine.fixed_bytes)
        elif not mine.compiled:
            mine.settle()  # it need not be planned again because the caller holds more than before

    def use(self, level: Level[Entry], sizes: Sizes) -> None:
        session = level.entry.session
        number = 0 if sizes == level.sizes else self.numbers.setdefault(sizes, len(self.numbers) + 1)
        if not session.knows_sizes(number):
            with collected_later():
                session.add_sizes(number, *level.numbers(self.capture.numbers_at(sizes)))
        session.use_sizes(number)

    def refuse(self, sizes: Sizes) -> None:
        """Batches of these sizes are planned by themselves from now on: an operator has asked for other memory than for larger ones."""
        self.refused.add(self.shapes_at(sizes))

    def release(self) -> None:
        """Gives the arena back."""
        for level in self.levels:
            level.entry.release()


class SizedShapes(Generic[Entry]):
    """The shapes of one model's batches: which are the same but for sizes."""

    def __init__(self, maker: Maker[Entry]) -> None:
        self.maker = maker
        self.steps: dict[Hashable, list[SizedSteps[Entry]]] = {}
        self.seen: dict[Hashable, list[Shapes]] = {}
        self.failures = 0
        self.reason = ""  # of the last failure

    def find(
        self, key: tuple[Any, ...], flat: Sequence[Any], capture: Callable[..., Captured], present: dict[Any, Entry],
    ) -> tuple[Entry, list[Any]] | None:
        """(what serves a batch, the program's inputs); None: its shape is one of its own.

        Args:
            key: the signature of the batch.
            flat: its arguments.
            capture: captures it; takes `symbols`.
            present: what there is for single shapes, of which those that are served together go.
        """
        pattern, shapes = divided(key)
        steps = self.known(pattern, shapes)
        if steps is None:
            history = self.seen.setdefault(pattern, [])
            is_new = shapes not in history
            if is_new:
                history.append(shapes)
            if not is_new or len(history) < 2 or self.failures >= MOST_FAILURES or len(self.steps.get(pattern, ())) >= MOST_CAPTURES:
                return None
            steps = self.new_steps(pattern, history, capture, present)
            if steps is None:
                return None
            steps.look_ahead(flat)
        sizes = steps.sizes_of(shapes)
        assert sizes is not None, "a capture is for its own sample"
        try:
            entry = steps.entry_for(sizes, flat)
        except RegenError as error:
            self.reason = str(error)
            return None
        inputs = entry.admit(flat)
        return None if inputs is None else (entry, inputs)

    def known(self, pattern: Hashable, shapes: Shapes) -> "SizedSteps[Entry] | None":
        return next((steps for steps in self.steps.get(pattern, ()) if steps.sizes_of(shapes) is not None), None)

    def new_steps(
        self, pattern: Hashable, history: list[Shapes], capture: Callable[..., Captured], present: dict[Any, Entry],
    ) -> "SizedSteps[Entry] | None":
        groups = varying(history)
        by_input = dict(history[-1])
        sample = tuple(by_input[group[0][0]][group[0][1]] for group in groups)
        if min(sample) < 2:
            return None  # a size of one is spread over others: it is a number, not a symbol
        try:
            steps = SizedSteps(sized(capture, groups, sample), groups, history, self.maker)
            gc.collect()  # a trace with symbols leaves much behind; some later step would wait for that
            for key in [key for key in present if divided(key[0])[0] == pattern]:
                sizes = steps.sizes_of(divided(key[0])[1])
                if sizes is not None and key[1] == 0 and not steps.levels:
                    steps.adopt(sizes, present[key])
                if sizes is not None:
                    present.pop(key).release()
        except CaptureError as error:
            self.failures += 1
            self.reason = str(error)
            return None
        earlier = self.steps.setdefault(pattern, [])
        for old in [old for old in earlier if len(old.groups) < len(groups)]:  # more varies than was known
            old.release()
            earlier.remove(old)
            steps.take_over(old)
        earlier.append(steps)
        return steps

    def forget(self, pattern: Hashable) -> None:
        """The plans go."""
        for old in self.steps.pop(pattern, []):
            old.release()

    def levels(self) -> "list[Level[Entry]]":
        """All plans."""
        return [level for found in self.steps.values() for steps in found for level in steps.levels]


def allows_sizes(options: Options) -> bool:
    """Whether batches of other sizes may run under a plan: not where the plan is given, or belongs to the sizes that were measured."""
    own = options.plan_file is None and options.algorithms == "default"
    return own and not options.releasable and not options.cuda_graphs and job() is None


@contextlib.contextmanager
def collected_later() -> Iterator[None]:
    """Around what makes thousands of objects that are gone at its end: garbage would be looked for among all objects of the process on their account."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def divided(key: tuple[Any, ...]) -> tuple[Hashable, Shapes]:
    """(what batches have in common that differ in sizes alone, their shapes)."""
    described, *rest = key
    pattern, shapes = [], []
    for index, item in enumerate(described):
        if isinstance(item, tuple) and len(item) == 5 and isinstance(item[0], torch.Size) and is_contiguous(item[0], item[2]):
            shapes.append((index, tuple(item[0])))
            pattern.append((len(item[0]), item[1], item[3], item[4]))
        else:
            pattern.append(item)
    return (tuple(pattern), *rest), tuple(shapes)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if stride != expected:
            return False
        expected *= size
    return True


def varying(history: Sequence[Shapes]) -> list[list[tuple[int, int]]]:
    """Dimensions that were not always the same, those together that always had the same size."""
    by_sizes: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for index, shape in history[0]:
        for dimension in range(len(shape)):
            sizes = tuple(dict(shapes)[index][dimension] for shapes in history)
            if len(set(sizes)) > 1:
                by_sizes.setdefault(sizes, []).append((index, dimension))
    return list(by_sizes.values())


def without(shapes: Shapes, groups: Sequence[Sequence[tuple[int, int]]]) -> Shapes:
    """With -1 in the place of what varies."""
    gone = {place for group in groups for place in group}
    return tuple((i, tuple(-1 if (i, d) in gone else n for d, n in enumerate(shape))) for i, shape in shapes)


def repeated(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Its contents, repeated or cut off, in another shape."""
    for dimension, size in enumerate(shape):
        indices = torch.arange(size, device=tensor.device) % max(1, tensor.shape[dimension])
        tensor = tensor.detach().index_select(dimension, indices)
    return tensor.contiguous()
