"""The sessions of one model: one for each shape of its inputs, of which one holds the arena. What `wrap`, `step` and `infer` share."""


class ShapeCache:
    """An entry has a `session`, which plans and holds the arena, and `make_ready()`, which takes it."""

    def __init__(self, admission=None):
        """`admission`: of a job whose bytes may change between two steps."""
        self.admission = admission
        self.shapes = {}
        self.active = None

    def shape_of(self, key, make):
        """The entry of this shape. Outside of a hold: the daemon may have to make room for a new one."""
        if key in self.shapes:
            if self.admission is not None:
                self.admission.tell()
            return self.shapes[key]
        self.release()  # measuring needs room, and quiet
        for other in self.shapes.values():
            other.session.improvement.stop()
        made = self.shapes[key] = make()
        if self.admission is not None:
            self.admission.introduce(made.session)
        return made

    def activate(self, shaped):
        """Inside a hold."""
        if self.active is not shaped:
            self.release()
        self.pack_state()
        shaped.make_ready()
        self.active = shaped

    def pack_state(self):
        """Once nobody else holds the arena, and before the session takes it: into one place what may have to leave."""

    @property
    def plan(self):
        return "no step has been planned yet" if self.active is None else self.active.report()

    def save_plan(self, path):
        """Writes the plan in use, for `plan_file=path` next time."""
        self.active.session.write_plan(path)

    def release(self):
        """Gives the arena back until the next batch."""
        if self.active is not None:
            self.active.release()
            self.active = None
