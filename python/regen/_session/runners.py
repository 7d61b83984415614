"""The runners of one model: one for each kind of batch, of which one holds the arena. What `wrap`, `step` and `infer` share."""


class Runners:
    """A runner here has a `runner` (Runner), which plans and holds the arena, and `make_ready()`, which takes it."""

    def __init__(self, admission=None):
        """`admission`: of a job whose bytes may change between two steps."""
        self.admission = admission
        self.runners = {}
        self.active = None

    def runner_of(self, key, make):
        """The runner of this kind of batch. Outside of a hold: the daemon may have to make room for a new one."""
        if key in self.runners:
            if self.admission is not None:
                self.admission.tell()
            return self.runners[key]
        self.release()  # measuring needs room, and quiet
        for other in self.runners.values():
            other.runner.improvement.stop()
        made = self.runners[key] = make()
        if self.admission is not None:
            self.admission.introduce(made.runner)
        return made

    def activate(self, runner):
        """Inside a hold."""
        if self.active is not runner:
            self.release()
        self.pack_state()
        runner.make_ready()
        self.active = runner

    def pack_state(self):
        """Once nobody else holds the arena, and before the runner takes it: into one place what may have to leave."""

    @property
    def plan(self):
        return "no step has been planned yet" if self.active is None else self.active.report()

    def save_plan(self, path):
        """Writes the plan in use, for `plan_file=path` next time."""
        self.active.runner.write_plan(path)

    def release(self):
        """Gives the arena back until the next batch."""
        if self.active is not None:
            self.active.release()
            self.active = None
