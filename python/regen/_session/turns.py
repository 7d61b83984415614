"""Which thread may use a planned function. Binding a request, running it and taking its results are one unit: the arena and the bound tensors
belong to one call at a time.
"""

import collections
import contextlib
import threading
from collections.abc import Iterator

from regen.errors import UsageError


class Refused(UsageError):
    """A call that came beside another one and did nothing."""


class Turns:
    """The calls of one planned function, one after the other, in the order in which they came.

    Requests wait for each other (`request`). Training steps are refused beside another one (`step`), because the order of their updates, and
    so the weights, would be left to chance. Questions about the plan wait as requests do, and may be asked inside of a call (`question`).
    """

    def __init__(self, name: str) -> None:
        """`name`: of the function, for errors."""
        self.name = name
        self.guard = threading.Lock()  # of what follows
        self.waiting: collections.deque[Waiter] = collections.deque()
        self.owner: Waiter | None = None
        self.depth = 0

    def __reduce__(self) -> tuple[type["Turns"], tuple[str]]:
        """A copy belongs to another function, which has no callers yet."""
        return Turns, (self.name,)

    def request(self) -> contextlib.AbstractContextManager[None]:
        """From any number of threads."""
        return self.inside(is_step=False, may_nest=False)

    def step(self, may_nest: bool = False) -> contextlib.AbstractContextManager[None]:
        """From one thread at a time. `may_nest`: a step may run another one inside, in the same thread."""
        return self.inside(is_step=True, may_nest=may_nest)

    def question(self) -> contextlib.AbstractContextManager[None]:
        """From any thread, also inside of a call."""
        return self.inside(is_step=False, may_nest=True)

    @contextlib.contextmanager
    def inside(self, is_step: bool, may_nest: bool) -> Iterator[None]:
        """A call, from its turn to its end."""
        self.enter(Waiter(is_step=is_step), may_nest)
        try:
            yield
        finally:
            self.leave()

    @contextlib.contextmanager
    def if_free(self) -> Iterator[bool]:
        """Whether no other thread is inside; none comes in meanwhile."""
        with self.guard:
            free = self.owner is None or self.owner.thread == threading.get_ident()
            if free:
                self.take(self.owner or Waiter(is_step=False))
        try:
            yield free
        finally:
            if free:
                self.leave()

    def enter(self, waiter: "Waiter", may_nest: bool) -> None:
        """Sleeps until it is this call's turn."""
        with self.guard:
            mine = self.owner is not None and self.owner.thread == waiter.thread
            if mine and not may_nest:
                raise UsageError(f"{self.name} was called inside of its own call; expected the first one to return before the next")
            if self.owner is None or mine:
                return self.take(self.owner or waiter)
            if waiter.is_step:
                self.refuse_beside(waiter)
            self.waiting.append(waiter)
            waiter.turn.acquire()
        try:
            waiter.turn.acquire()
        except BaseException:  # Ctrl-C
            self.give_up(waiter)
            raise

    def leave(self) -> None:
        """The call that has waited longest is next. It is handed over, so that no newcomer overtakes."""
        with self.guard:
            self.depth -= 1
            if self.depth == 0:
                self.owner = None
                if self.waiting:
                    self.take(self.waiting.popleft())
                    assert self.owner is not None
                    self.owner.turn.release()

    def take(self, waiter: "Waiter") -> None:
        self.owner = waiter
        self.depth += 1

    def give_up(self, waiter: "Waiter") -> None:
        with self.guard:
            waits = waiter in self.waiting
            if waits:
                self.waiting.remove(waiter)
        if not waits:
            self.leave()  # it was this call's turn already

    def refuse_beside(self, waiter: "Waiter") -> None:
        others = [other for other in (self.owner, *self.waiting) if other is not None and other.is_step]
        if others:
            raise Refused(
                f"{self.name} was called by thread '{waiter.name}' while thread '{others[0].name}' is inside; expected one thread at a time: "
                "the order of the updates would be left to chance (hold a threading.Lock around the whole step)")


class Waiter:
    """A call of a thread."""

    def __init__(self, is_step: bool) -> None:
        self.is_step = is_step
        self.thread = threading.get_ident()
        self.turn = threading.Lock()

    @property
    def name(self) -> str:
        """Of the thread, for errors."""
        return next((thread.name for thread in threading.enumerate() if thread.ident == self.thread), str(self.thread))
