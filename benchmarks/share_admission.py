"""Trainings that would need more bytes than the device has (`--over`, 1.6 times) to keep everything, together on it. JSON lines.

    python benchmarks/share_admission.py --device cuda --models resnet50 vgg16 gpt2_medium     # on a GPU, about 90 s
    python benchmarks/share_admission.py --tiny --seconds 2 --batch 16                          # anywhere

`alone`: each with all the bytes it can use (moving may be as quick as keeping: then fewer are useful); `promised` is what its plan says a
step takes. `admitted`: one after the other, the largest first, while the others train: from asking until it has a plan, and the limits
of all then. `before_...`: the limits (seconds, bytes) that it saw until the next row is measured. `together`: all train; the limits it
saw, the most bytes the process really had (all that torch has reserved from the driver, and the arenas) and how much that is over its limit
at the worst (negative: never; on a CPU the loss that a step returns counts, a few bytes). `total`: time of all that was done together,
beside the sum over the jobs of steps times promised seconds at the limit of each step. `left`: the last one has gone, and the others have
its bytes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from share_crew import Daemon, emit

MEMBER = str(pathlib.Path(__file__).resolve().parent / "admission_member.py")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=["resnet50", "gpt2_medium", "llama"])
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=8, help="of training together; alone, half of that")
    parser.add_argument("--over", type=float, default=1.6)
    parser.add_argument("--quantum", type=float, default=1e-3)
    parser.add_argument("--improve", type=float, default=0, help="seconds of search for better plans beside the trainings")
    parser.add_argument("--link", type=float, help="bytes per second to the host that plans count with; default: measured")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


class Member:
    """A training under a daemon, ready to register."""

    def __init__(self, options, daemon, number, memory):
        self.name, self.asked = f"{options.models[number]}{number}", memory
        given = {"--device": options.device, "--model": options.models[number], "--batch": options.batch, "--quantum": options.quantum,
                 "--improve": options.improve, "--link": options.link}
        command = [*daemon.job(self.name, str(memory)), sys.executable, MEMBER, *(["--tiny"] if options.tiny else [])]
        for option, value in given.items():
            command += [option, str(value)] if value is not None else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def join(self):
        """Registers and plans. Its trade-off curve."""
        self.say("go")
        found = self.hear()
        self.points, self.keep_all, self.seconds = found["points"], found["keep_all_bytes"], found["seconds"]
        return self

    def say(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def stop(self, word="rest"):
        """Says what it did since the command to train."""
        self.say(word)
        found = self.hear()
        if word == "rest":
            self.hear()  # it did nothing since
        return found

    def end(self):
        self.say("end")
        self.hear()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def per_second(found):
    return found["steps"] / found["seconds"]


def measure_alone(options):
    """(bytes for keeping everything, steps per second) of each model."""
    found = []
    with Daemon() as daemon:
        members = [Member(options, daemon, number, 1 << 37) for number in range(len(options.models))]
        for member in members:
            assert member.hear() == {"ready": True}
        for member in members:
            member.join()
        for member in members:
            member.say("train")
            time.sleep(options.seconds / 2)
            done = member.stop()
            found.append((member.keep_all, per_second(done)))
            emit(row="alone", job=member.name, keep_all_bytes=member.keep_all, least_bytes=member.points[0][0],
                 useful_bytes=member.points[-1][0], points=len(member.points), planned_seconds=member.seconds,
                 steps_per_second=per_second(done), promised_per_second=done["steps"] / max(1e-9, done["promised_seconds"]),
                 peak_bytes=done["peak_bytes"], most_over_limit=done["most_over_limit"])
        for member in members:
            member.end()
    return found


def admit(members, daemon):
    """One after the other, while those before it train."""
    for count, member in enumerate(members):
        member.join()
        member.say("train")
        emit(row="admitted", job=member.name, asked_bytes=member.asked, seconds=member.seconds,
             limits={other.name: daemon.jobs()[other.name]["limit_bytes"] for other in members[:count + 1]})


def measure_together(options, alone):
    order = sorted(range(len(options.models)), key=lambda number: -alone[number][0])
    size = int(sum(size for size, _ in alone) / options.over)
    emit(row="device", bytes=size, keep_all_sum=sum(size for size, _ in alone), over=options.over)
    with Daemon(size) as daemon:
        members = [Member(options, daemon, number, alone[number][0]) for number in order]
        for member in members:
            assert member.hear() == {"ready": True}
        admit(members, daemon)
        time.sleep(1)
        report_stretch("together", options, members, daemon, alone, order, options.seconds)
        gone, *stay = reversed(members)
        gone.stop()
        gone.end()
        report_stretch("left", options, stay[::-1], daemon, alone, order, options.seconds / 2)
        for member in stay:
            member.end()


def report_stretch(row, options, members, daemon, alone, order, seconds):
    """What all do in so many seconds, counted from the same moment."""
    for member in members:
        until_now = member.stop("train")
        emit(row=f"before_{row}", job=member.name, limits=until_now["limits"], peak_bytes=until_now["peak_bytes"],
             most_over_limit=until_now["most_over_limit"], steps=until_now["steps"])
    begin = time.perf_counter()
    time.sleep(seconds)
    limits = {name: job["limit_bytes"] for name, job in daemon.jobs().items()}
    found = [member.stop("train") for member in members]
    spent = time.perf_counter() - begin
    for member, done in zip(members, found):
        number = order[[m.name for m in members].index(member.name)]
        emit(row=row, job=member.name, asked_bytes=member.asked, limit_bytes=limits[member.name], limits=done["limits"],
             peak_bytes=done["peak_bytes"], most_over_limit=done["most_over_limit"], steps=done["steps"],
             steps_per_second=per_second(done), alone_per_second=alone[number][1],
             promised_ms=done["promised_seconds"] / max(1, done["steps"]) * 1e3)
    promised = sum(done["promised_seconds"] for done in found)
    emit(row="total", of=row, seconds=spent, promised_seconds=promised, over_promised=spent / max(1e-9, promised),
         limits_sum=sum(limits.values()))


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("REGEN_CACHE", folder)  # what is measured once serves both parts
        alone = measure_alone(options)
        measure_together(options, alone)


if __name__ == "__main__":
    main()
