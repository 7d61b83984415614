"""Requests beside a training, and two trainings, on one device: one JSON line for each row.

    python benchmarks/share_latency.py --device cuda        # on a GPU, below five minutes
    python benchmarks/share_latency.py --tiny --seconds 1   # anywhere

Ways to share (`how`): `alone` (the other does nothing; always measured), `eager` (the same in plain PyTorch), `regen` (under the daemon,
requests more urgent), `free` (two processes that know nothing of each other), `mps` (the same under NVIDIA's service, where it is
installed), `regen+mps` (the daemon's jobs under that service), `threads` (plain PyTorch in one process, on a GPU with a stream of high
priority for the requests).
Requests come one after the other (`closed`) or at random moments (`poisson`) at a rate that would keep the device busy for `--load` of
the time; their time counts from the moment they came. `kept` is the training's throughput over what the requests leave of it by the time
they take alone; empty where they leave next to nothing.

Then, under the daemon: the time from a request to the grant and to the end of a first kernel, and two trainings with weights.
A training is MODEL or MODEL:BATCH, of examples/models. Processes start once for each way and keep their networks for all rows.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from share_crew import WAYS, add_options, crews_of, emit, end_by_signal, work

ARRIVALS = ("closed", "poisson")
LEAST_LEFT = 0.05  # of the device, for `kept` to mean something


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--train", nargs="+", default=["resnet50:64", "vgg16:64", "gpt2_medium:8"], metavar="MODEL[:BATCH]")
    parser.add_argument("--infer", nargs="+", default=["resnet50"], metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=4, help="of each row (default 4)")
    parser.add_argument("--load", type=float, default=0.3)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=["alone", *WAYS])
    parser.add_argument("--arrivals", nargs="+", default=list(ARRIVALS), choices=ARRIVALS)
    parser.add_argument("--cuda-graphs", action="store_true", help="requests under a plan are launched as a whole (CUDA graphs)")
    parser.add_argument("--weights", nargs="+", default=["1:1", "1:3"])
    parser.add_argument("--only", nargs="+", choices=["requests", "preemption", "weights"], default=["requests", "preemption", "weights"])
    return parser.parse_args()


def training(text):
    model, _, batch = text.partition(":")
    return work("train", model, int(batch) if batch else None)


def crew_ways(ways):
    """A free crew first, for what is alone: it also fills the cache with measurements without disturbance."""
    return ["free", *(way for way in WAYS if way in ways and way != "free")]


class Requests:
    """Rows of requests at the second place beside trainings at the first; `options` as of parse()."""

    def __init__(self, options, emit):
        self.options, self.emit = options, emit
        self.alone = {}

    def prepare(self, crew):
        crew.prepare("first", *map(training, self.options.train))
        crew.prepare("second", *(self.answer(model) for model in self.options.infer))
        if crew.way == "free":
            crew.prepare("second", *(self.answer(model, planned=False) for model in self.options.infer))
        crew.rank((0, 1), (1, 1))

    def answer(self, model, **more):
        return work("infer", model, 1, cuda_graphs=self.options.cuda_graphs, **more)

    def request(self, model, arrivals, **more):
        """Its rate follows from what a request takes alone, one after the other."""
        rate = self.options.load / self.alone[model, "closed"]["p50_ms"] * 1e3 if arrivals == "poisson" else 0
        return self.answer(model, rate=rate, **more)

    def measure_alone(self, crew):
        for text in self.options.train:
            found, = crew.measure(self.options.seconds, first=training(text))
            self.alone[text] = found["images_per_second"]
            self.emit(row="training", how="alone", train=text, images_per_second=self.alone[text])
        for model in self.options.infer:
            for arrivals in ("closed", *(a for a in self.options.arrivals if a != "closed")):
                found, = crew.measure(self.options.seconds, second=self.request(model, arrivals))
                self.alone[model, arrivals] = found
                if arrivals in self.options.arrivals:
                    self.emit(row="requests", how="alone", infer=model, arrivals=arrivals, **found)
                    plain, = crew.measure(self.options.seconds, second=self.request(model, arrivals, planned=False))
                    self.emit(row="requests", how="eager", infer=model, arrivals=arrivals, **plain)

    def measure(self, crew):
        for text in self.options.train:
            if crew.daemon:
                self.measure_lonely(crew, text)
            for model in self.options.infer:
                if model == text.partition(":")[0] and len(self.options.infer) > 1:
                    continue  # as published: two different networks
                for arrivals in self.options.arrivals:
                    self.measure_pair(crew, text, model, arrivals)

    def measure_lonely(self, crew, text):
        """What it costs to be a job where no other job needs the device."""
        found, = crew.measure(self.options.seconds, first=training(text))
        self.emit(row="training", how=crew.way, train=text, images_per_second=found["images_per_second"],
                  share_of_alone=found["images_per_second"] / self.alone[text])

    def measure_pair(self, crew, text, model, arrivals):
        trained, answered = crew.measure(self.options.seconds, first=training(text), second=self.request(model, arrivals))
        taken = answered["requests"] * self.alone[model, "closed"]["p50_ms"] / 1e3 / self.options.seconds  # of the device
        share = trained["images_per_second"] / self.alone[text]
        self.emit(row="requests", how=crew.way, train=text, infer=model, arrivals=arrivals, load=taken,
                  **{key: answered[key] for key in ("requests", "p50_ms", "p95_ms", "p99_ms")},
                  p95_over_alone=answered["p95_ms"] / self.alone[model, arrivals]["p95_ms"],
                  images_per_second=trained["images_per_second"], share_of_alone=share,
                  kept=share / (1 - taken) if taken < 1 - LEAST_LEFT else None, pauses=trained.get("pauses"))


def measure_preemption(options, crew):
    crew.prepare("first", *map(training, options.train))
    crew.prepare("second", work("probe"))
    crew.rank((0, 1), (1, 1))
    for text in options.train:
        _, found = crew.measure(options.seconds, first=training(text), second=work("probe"))
        emit(row="preemption", how=crew.way, train=text, requests=found["requests"],
             **{f"grant_{key}": found["grant"][key] for key in ("p50_ms", "p99_ms")},
             **{f"first_kernel_{key}": found["first_kernel"][key] for key in ("p50_ms", "p99_ms")})


class Weights:
    """Two equal trainings: alone, free, and under the daemon with each pair of weights."""

    def __init__(self, options):
        self.options = options
        self.spec = training(options.train[0])

    def measure(self, crew):
        for place in ("first", "second"):
            crew.prepare(place, self.spec)
        if crew.way == "free":
            found, = crew.measure(self.options.seconds, first=self.spec)
            self.alone = found["images_per_second"]
        for text in self.options.weights if crew.daemon else [None]:
            self.measure_pair(crew, text)

    def measure_pair(self, crew, text):
        weights = [float(weight) for weight in text.split(":")] if text else [1, 1]
        crew.rank(*((0, weight) for weight in weights))
        before = crew.daemon.used() if crew.daemon else {}
        found = crew.measure(self.options.seconds, first=self.spec, second=self.spec)
        after = crew.daemon.used() if crew.daemon else {}
        more = {}
        if crew.daemon:
            used = [after[place] - before[place] for place in ("first", "second")]
            more = dict(weights=text, pauses=[f["pauses"] for f in found], returns=[f["returns"] for f in found],
                        device_share=[round(u / max(sum(used), 1e-9), 4) for u in used],
                        wanted_share=[round(weight / sum(weights), 4) for weight in weights])
        speeds = [f["images_per_second"] for f in found]
        emit(row="two_trainings", how=crew.way, train=self.options.train[0], images_per_second=[round(speed, 1) for speed in speeds],
             sum_over_alone=sum(speeds) / self.alone, **more)


def main():
    options = parse()
    end_by_signal()
    requests, weights = Requests(options, emit), Weights(options)
    with crews_of(options, crew_ways(options.ways), lambda line: print(line, file=sys.stderr)) as crews:
        for crew in crews:
            with crew:
                if "requests" in options.only:
                    requests.prepare(crew)
                    if crew.way == "free":
                        requests.measure_alone(crew)
                    if crew.way in options.ways:
                        requests.measure(crew)
                if "preemption" in options.only and crew.daemon:
                    measure_preemption(options, crew)
                if "weights" in options.only and crew.planned:
                    weights.measure(crew)


if __name__ == "__main__":
    main()
