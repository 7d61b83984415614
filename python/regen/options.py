"""What a user may say about how a step is planned."""

import dataclasses

# Seconds for a search that was given no time: where nothing better comes later, and where it does.
WHOLE_SECONDS = 5.0
FIRST_SECONDS = 1.0
# For the search beside the training, unless `improve` says how many.
BACKGROUND_SECONDS = 20.0


@dataclasses.dataclass
class Options:
    budget: object
    planner: str = "auto"
    reserve: object = None  # bytes for what the caller holds; None: measured
    host_budget: object = None
    time_limit: float = 0.0
    work_limit: int = 0
    debug: bool = False
    cache: object = None  # folder; None: ~/.cache/regen; False: none
    link: tuple = None  # bytes per second to the host, to the device, both together
    plan_file: object = None
    improve: object = None  # True, False or seconds; None: on a GPU
    capture: bool = False  # on a GPU, launch stretches that are the same in every step as a whole
    releasable: bool = False  # the arena's memory may go and come back: spill(), restore()
    algorithms: str = "default"  # those of plain PyTorch, so its bits; "any": faster or smaller ones too
    window: float = 1e-3  # of a job that shares its device: seconds of work on it when another one asks for it, at most (or two ops)

    def __post_init__(self):
        if self.algorithms not in ("default", "any"):
            raise ValueError(f"algorithms={self.algorithms!r} found, expected 'default' or 'any'")
        if isinstance(self.window, bool) or not isinstance(self.window, (int, float)) or not 0 < self.window <= 1:
            raise ValueError(f"window={self.window!r}; expected seconds, above 0 and at most 1")
        good = self.improve is None or isinstance(self.improve, bool) or (
            isinstance(self.improve, (int, float)) and 0 <= self.improve < float("inf"))
        if not good:
            raise ValueError(f"improve={self.improve!r}; expected True, False, or seconds for the search beside the training")

    def background_seconds(self, kind):
        """How long a better plan is looked for while the steps go on; 0: not at all.

        Not on a CPU unless asked for, where planner and step would fight for the cores; nor beside a search of counted
        work, which is to give the same plan every time."""
        if self.plan_file is not None:
            return 0.0
        if self.improve is None:
            return BACKGROUND_SECONDS if kind == "cuda" and not self.work_limit else 0.0
        return BACKGROUND_SECONDS if self.improve is True else float(self.improve)

    def first_seconds(self, background_seconds):
        """For a plan that is waited for; 0: for as long as its counted work takes, which gives the same plan on a slow machine."""
        if self.time_limit or self.work_limit:
            return self.time_limit
        return FIRST_SECONDS if background_seconds else WHOLE_SECONDS
