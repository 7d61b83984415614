"""What the caller holds beside a plan: its loss, its optimizer's state and scratch, DDP's buckets."""

import warnings
import weakref
from typing import TYPE_CHECKING, Any

from regen import _runtime
from regen._session.lending import Lending
from regen._session.outputs_used import OutputsUsed
from regen._session.turns import Turns
from regen.errors import Error, OptionError

if TYPE_CHECKING:
    from regen._session.wrapped_module import ModuleSession, ShapedModule

# Room for what varies a little from step to step, as a fraction of what was measured.
MARGIN = 1 / 256
# The first steps of a plan, in which the caller's code calls kernels for the first time: they are loaded into memory that no allocator counts.
STEPS_THAT_LOAD_KERNELS = 3


class CallerMemory:
    """Bytes of the budget that are the caller's: given as `reserve=`, or measured while training.

    Measuring needs no knowledge of what the caller does: what the device has in use at the highest point of a step,
    less what the plan accounts for, is the caller's.
    """

    def __init__(self, reserve, device, turns=None, lends=False):
        """`turns`: of the threads that run the passes; None: there is one. `lends`: the arena's memory between two steps."""
        self.turns = turns or Turns("regen.wrap")
        self.lending = Lending(lends)
        self.device = str(device)
        self.on_cpu = self.device.startswith("cpu")
        self.measured = reserve is None
        self.sessions: weakref.WeakSet[ModuleSession] = weakref.WeakSet()  # whose plans leave room for the caller
        self.bytes = 0 if reserve is None else as_bytes(reserve)
        self.outside = 0  # in use on a CPU before the model was wrapped, and none of our business
        self.started = False
        self.own: int | None = None  # what the plan of the last step accounts for
        self.unplanned: int | None = None  # the peak of the first sample's step without a plan
        self.outputs = []
        self.earlier_peak = 0  # of this plan, before the peak was reset last
        self.learning = False
        self.kernels = 0  # bytes of them that this plan's steps have loaded so far, or those of an earlier plan
        self.steps_of_plan = 0
        self.uncounted = 0  # what the driver counted beside torch's memory and the arena when the first of them began
        self.arena = 0
        self.steps = 0
        self.forwards = 0  # names the forward pass whose values are in the arena
        self.last_call: Any = lambda: None  # a weak reference to it
        self.passes_overlap = False  # a pass has begun before the backward pass of the one before
        self.runs_again = False  # a pass whose values were gone
        self.used = OutputsUsed()
        self.boundary = 0  # taken by the caller between the two passes, at most
        if self.on_cpu:
            _runtime.install_memory_meter()

    @property
    def bytes(self) -> int:
        """Of the budget, for what the caller holds."""
        return self._bytes

    @bytes.setter
    def bytes(self, size: int) -> None:
        self._bytes = size
        for session in self.sessions:
            session.caller_bytes = size

    def add(self, session: "ModuleSession") -> None:
        """A step beside which the caller holds its bytes."""
        if self.unplanned is None:
            self.unplanned = session.unplanned_bytes
        self.sessions.add(session)
        session.caller_bytes = self.bytes

    def take_back(self, shaped: "ShapedModule | None", begins: bool) -> None:
        """What the caller still has of the arena gets memory of its own. `begins`: the next step is about to, so the loop keeps its gradients."""
        lending = self.lending
        lending.close_room()
        if begins:
            lending.last = None
        holding = [session for session in self.sessions if lending.held_by(session) > 0]
        if not holding:
            return
        keeps = begins and any(session.lent_bytes > 0 for session in holding)
        for session in holding:
            lending.take_back(session, self.room_beside(session))
        if keeps:
            lending.lends_gradients = False
            for session in self.sessions:
                session.stop_lending()
        if self.measured and shaped is not None and self.started:
            self.note(_runtime.memory_use(self.device)["allocated"] - self.outside - shaped.present_bytes())

    def room_beside(self, session: "ModuleSession") -> int | None:
        """Bytes of the budget that nothing is in now; None: there is no limit."""
        budget = session.gross_budget
        if budget is None:
            return None
        arena = 0 if self.on_cpu else session.memory().arena_bytes
        return budget - (_runtime.memory_use(self.device)["reserved"] - self.outside) - arena

    def start(self, present):
        """Before the first step, when the `present` bytes that plans account for are on the device."""
        if not self.started:
            self.started = True
            self.outside = _runtime.memory_use(self.device)["allocated"] - present if self.on_cpu else 0
            _runtime.reset_memory_peak(self.device)

    def end_step(self):
        """Before the next forward pass: what did the last step take?"""
        peak = self.measured_peak()
        if peak is not None and self.own is not None:
            self.note_kernels()
            self.note(peak - self.own + self.kernels)

    def uncounted_bytes(self) -> int:
        """Of the device, in use beside torch's memory and the arena: contexts, kernels, other processes."""
        use = _runtime.memory_use(self.device)
        return 0 if self.on_cpu else use["driver"] - use["reserved"] - self.arena

    def note_kernels(self) -> None:
        """What has come since the plan's first step began."""
        if self.measured and self.steps_of_plan <= STEPS_THAT_LOAD_KERNELS:
            self.kernels = max(self.kernels, _runtime.loaded_kernel_bytes(self.device, self.uncounted, self.uncounted_bytes()))

    def measured_peak(self) -> int | None:
        """Since the plan in use runs; None before it did."""
        if self.own is None:
            return None
        return max(self.earlier_peak, _runtime.memory_use(self.device)["reserved_peak"] - self.outside)

    def foresee(self, shaped):
        """With the arena in place: the coming step is sure to need what is there and what it is going to make."""
        if self.measured:
            use = _runtime.memory_use(self.device)["allocated"] - self.outside
            coming = shaped.coming_bytes()
            # Outputs of the last step live until the new ones take their names.
            old = sum(t.untyped_storage().nbytes() for t in (ref() for ref in self.outputs) if t is not None)
            more = max(self.boundary, coming.tangents, coming.tangents + coming.gradients) - old
            self.note(use + coming.outputs + max(0, more) - shaped.own_bytes)

    def is_known(self):
        """False until a step has shown what the caller takes: plans will get less room then."""
        return not self.measured or self.steps > 1

    def plan_changed(self):
        """What was measured was another plan's."""
        self.own = None

    def begin_step(self, own: int, arena: int = 0) -> None:
        """Under a plan that accounts for `own` bytes; `arena`: what it has beside torch's allocator."""
        self.steps += 1
        self.steps_of_plan += 1
        if own != self.own or arena != self.arena:
            self.steps_of_plan, self.arena = 1, arena
            self.uncounted = self.uncounted_bytes() - self.kernels
        if own != self.own:
            self.own = own
            self.earlier_peak = 0
            self.learning = self.measured
            _runtime.reset_memory_peak(self.device)

    def after_forward(self, outputs):
        self.outputs = [weakref.ref(output) for output in outputs]
        if self.learning:
            self.earlier_peak = self.measured_peak() or 0
            _runtime.reset_memory_peak(self.device)
            self.left = _runtime.memory_use(self.device)["allocated"]

    def before_backward(self):
        if self.learning:
            self.boundary = max(self.boundary, _runtime.memory_use(self.device)["allocated_peak"] - self.left)
            self.learning = False

    def after_backward(self):
        self.earlier_peak = self.measured_peak() or 0  # should the caller reset the peak for measurements of its own

    def say_it_runs_again(self):
        """Once: it takes time that the loop may save."""
        if not self.runs_again:
            self.runs_again = True
            warnings.warn(
                "regen: a backward pass comes after another pass of the same wrapped model, or for a second time, so its forward pass runs again; "
                "one forward pass over all of the batches, or a backward pass after each, takes less time", stacklevel=2)

    def note(self, held):
        if self.measured and held > self.bytes:
            self.bytes = held + int(held * MARGIN)


def as_bytes(amount):
    """Of a caller: `reserve`."""
    if isinstance(amount, str):
        try:
            return _runtime.parse_bytes(amount)
        except Error as error:
            raise OptionError(f"reserve={amount!r}: {error}") from None
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < float("inf"):
        raise OptionError(f"reserve={amount!r}; expected a number of bytes such as '1GiB', or None")
    return int(amount)
