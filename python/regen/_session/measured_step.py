"""What a step took on the device: its time and its highest point of memory."""

import time

import torch

from regen import _runtime


class StepClock:
    """How long the passes of a step took on the device, without what the caller does between them."""

    def __init__(self, kind):
        self.on_gpu = kind == "cuda"
        self.spans = []

    def begin(self):
        self.since = self.now()

    def end(self):
        self.spans.append((self.since, self.now()))

    def now(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @property
    def total(self):
        if not self.on_gpu:
            return sum(end - begin for begin, end in self.spans)
        self.spans[-1][1].synchronize()
        return sum(begin.elapsed_time(end) for begin, end in self.spans) / 1e3


class StepMeter:
    """Peak and time of whole steps under the plan in use.

    What the caller holds beside the step is not the step's: on a CPU all that is there before a step and not accounted
    for by the plan; on a GPU nothing, as the budget is for the process. The peak of memory is the same in every step, so
    that the first few are measured.
    """

    STEPS = 3

    def __init__(self, device):
        self.device = device
        self.kind = device.split(":")[0]
        if self.kind == "cpu":
            _runtime.install_memory_meter()
        self.start_afresh()

    def start_afresh(self):
        """Another plan is about to run."""
        self.steps = 0
        self.clock = self.peak_bytes = None

    def begin(self, present, arena):
        """`present`: bytes that the plan accounts for and that are there now, the arena among them on a CPU."""
        if self.steps == 0:
            _runtime.reset_memory_peak(self.device)
        if self.steps < self.STEPS:
            use = _runtime.memory_use(self.device)
            self.peak_before = use["reserved_peak"] if self.steps else 0
            # Arenas of a GPU do not come from torch.
            self.beside = present - use["allocated"] if self.kind == "cpu" else arena + _runtime.state_arena_bytes(self.device)
        self.running = StepClock(self.kind)
        self.running.begin()

    def end(self):
        self.running.end()
        self.clock = self.running
        if self.steps < self.STEPS:
            peak = _runtime.memory_use(self.device)["reserved_peak"]
            if peak > self.peak_before:  # else it was the caller's, between two steps
                self.peak_bytes = max(peak + self.beside, self.peak_bytes or 0)
        self.steps += 1

    @property
    def seconds(self):
        return None if self.clock is None else self.clock.total
