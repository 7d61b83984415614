"""Measures shared input: what each further consumer costs the producer, and what jobs gain against a loader of their own.

    python benchmarks/shared_input.py                    # tiny, CPU
    python benchmarks/shared_input.py --device cuda      # minutes on an H200 with 16 cores

Images are decoded as JPEGs are. Separate loaders and the shared one have the same number of workers in all. Prints JSON lines:
  {"what": "cost", "decoding": whether images were decoded, "consumers": k, "producer_cpu_ms": per batch,
   "consumer_cpu_ms": per batch and consumer, ...}; medians
  {"what": "throughput", "jobs": k, "way": "separate" or "shared", "images_per_second": sum, "of_each": [...]}
  {"what": "gain", "jobs": k, "ratio": shared over separate}
with "after_seconds" since the program began.
The grids of SwitchFlow's Figures 8 and 9 are experiments/switchflow_fig8.py and switchflow_fig9.py.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import statistics
import time

from input_jobs import NO_MODEL, Crew, Setting

# (models of the jobs, batch, training)
GROUPS = [
    (["resnet50"] * 2, 32, True),
    (["resnet50"] * 2, 128, False),
    (["resnet50", "mobilenet_v2", "googlenet"], 32, True),
    (["resnet50", "mobilenet_v2", "googlenet"], 128, False),
]


ROUNDS = 5  # of each number of consumers; their median counts
BEGAN = time.monotonic()


def print_row(**line):
    print(json.dumps({**line, "after_seconds": round(time.monotonic() - BEGAN)}), flush=True)


def measure_cost(options, decoding):
    """Decoding in the producer itself, so that its whole cost is one number; without decoding it is that of handing out. One crew for each
    number of consumers, in turns: what the machine does beside is the same for all."""
    setting = Setting(options.device, options.side, options.cores, in_producer=True, decode=decoding)
    with contextlib.ExitStack() as all_of_them:
        crews = [all_of_them.enter_context(Crew(consumers, setting)) for consumers in (1, 2, 3)]

        def measure(crew, seconds):
            return crew.measure("shared", [NO_MODEL] * len(crew.pipes), options.cost_batch, False, seconds)

        with concurrent.futures.ThreadPoolExecutor() as threads:  # producers take long to start
            list(threads.map(lambda crew: measure(crew, 0.1), crews))
        rounds = [[measure(crew, options.seconds) for crew in crews] for _ in range(ROUNDS)]
    for consumers, found in zip((1, 2, 3), zip(*rounds)):
        print_row(
            what="cost", decoding=decoding, consumers=consumers, batch=options.cost_batch, side=options.side, device=options.device, rounds=ROUNDS,
            producer_cpu_ms=middle(1e3 * jobs[0]["producer_cpu"] / jobs[0]["batches"] for jobs in found),
            consumer_cpu_ms=middle(1e3 * sum(job["cpu"] / job["batches"] for job in jobs) / consumers for jobs in found),
            batches_per_second=middle(min(job["batches"] / job["seconds"] for job in jobs) for jobs in found))


def middle(values):
    return round(statistics.median(values), 3)


def measure_throughput(options):
    with Crew(3, Setting(options.device, options.side, options.cores)) as crew:
        for models, batch, train in GROUPS:
            batch = batch if options.device == "cuda" else options.cost_batch
            sums = {}
            for way in ("separate", "shared"):
                found = crew.measure(way, models, batch, train, options.seconds)
                rates = [round(f["images_per_second"], 1) for f in found]
                sums[way] = sum(rates)
                print_row(what="throughput", jobs=len(models), way=way, models=models, train=train, batch=batch, cores=options.cores,
                     images_per_second=round(sums[way], 1), of_each=rates)
                crew.close_inputs()
            print_row(what="gain", jobs=len(models), models=models, train=train, batch=batch, ratio=round(sums["shared"] / sums["separate"], 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--side", type=int, help="of the square images, a multiple of 8 (default 224; on a CPU 64)")
    parser.add_argument("--cost-batch", type=int, default=8, help="batch of the cost's rows, and of all on a CPU (default 8)")
    parser.add_argument("--seconds", type=float, help="of each row, measured (default 1.5; on a CPU 0.3)")
    parser.add_argument("--cores", type=int, default=max(3, (os.cpu_count() or 4) - 1), help="workers that decode, in all")
    parser.add_argument("--only", choices=["cost", "throughput"])
    options = parser.parse_args()
    options.side = options.side or (224 if options.device == "cuda" else 64)
    options.seconds = options.seconds or (1.5 if options.device == "cuda" else 0.3)
    if options.only != "throughput":
        for decoding in (True, False):
            measure_cost(options, decoding)
    if options.only != "cost":
        measure_throughput(options)


if __name__ == "__main__":
    main()
