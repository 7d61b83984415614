"""A better plan, looked for while the steps run under the first one."""

import atexit
import warnings
import weakref

# Searches that may still run: a process that ends must not leave a thread behind.
RUNNING = weakref.WeakSet()
# Costs that differ by less are the same up to rounding.
SAME = 1e-9


@atexit.register
def stop_all():
    searches = list(RUNNING)
    for search in searches:
        search.stop()
    for search in searches:
        search.wait()


class Improvement:
    """Of one session: at most one search at a time, and one for each plan that was made in the foreground.

    The session is handed in, not kept, so that it goes, and the search with it, when nobody uses it any more.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self.search = None
        self.searched_for = None  # the key of the plan that is, or was, to be improved

    def begin(self, session):
        """With a plan in use. Where it was made anew since the last search began, that one is of no use any more."""
        if not self.seconds or self.searched_for == session.planned_for:
            return
        self.stop()
        self.searched_for = session.planned_for
        if not proven_best(session.report) and session.report.get("searched", 0) < self.seconds:
            self.search = session.step.search(session.request(session.options.planner, session.budget, self.seconds))
            RUNNING.add(self.search)

    def take(self, session, number):
        """Between two steps, `number` being the next: gives the session the better plan, if one was found meanwhile."""
        if self.search is None or not self.search.ended or self.searched_for != session.planned_for:
            return
        search, self.search = self.search, None
        try:
            better = session.step.is_improved_by(search, session.request(session.options.planner, session.budget))
        except Exception as error:
            warnings.warn(f"regen: {one_line(error)}; the plan in use stays", stacklevel=2)
            return
        if better:
            self.swap(session, search, number)
        else:
            note_bound(session.report, search.lower_bound)
        session.report["searched"] = self.seconds
        if session.predicted_peak <= session.gross_budget:
            session.save_plan()

    def swap(self, session, search, number):
        before = session.report["cost"]
        session.release()
        session.report = session.step.take(search)
        session.report["improved"] = {"step": number, "seconds": search.seconds, "cost": before}

    def stop(self):
        """What was found is thrown away; the same plan may be improved again."""
        if self.search is not None:
            self.search.stop()
            self.search = None
        self.searched_for = None


def proven_best(report):
    return report["status"] == "optimal" or report["cost"] <= report["lower_bound"] * (1 + SAME)


def note_bound(report, bound):
    """A search that found nothing better may still have proven more."""
    report["lower_bound"] = max(report["lower_bound"], min(bound, report["cost"]))
    report["gap"] = max(0.0, 1 - report["lower_bound"] / report["cost"]) if report["cost"] > 0 else 0.0


def one_line(error):
    return " ".join(str(error).split())
