"""Measures shared input: what each further consumer costs the producer, and what jobs gain against a loader of their own.

    python benchmarks/shared_input.py                                                       # tiny, CPU
    python benchmarks/shared_input.py --side 224 --batch 64 --batches 100 --workers 4 --device cuda --models resnet50,vgg16,mobilenet_v2

Images are decoded as JPEGs are: inflated, scaled, transformed back from 8x8 frequencies. Prints JSON lines:
  {"what": "cost", "consumers": k, "producer_cpu_ms": per batch, "consumer_cpu_ms": per batch and consumer, ...}
  {"what": "throughput", "jobs": k, "way": "separate" or "shared", "workers": in all, "images_per_second": sum, "of_each": [...]}
  {"what": "gain", "jobs": k, "ratio": shared over separate}
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import zlib

import torch
from torch.utils.data import DataLoader

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

WARM_UP = 3


class Compressed:
    """Images as deflated 8x8 blocks of quantized frequencies."""

    def __init__(self, side, length):
        generator = torch.Generator().manual_seed(0)
        blocks = 3 * (side // 8) ** 2
        spectrum = torch.arange(8).view(8, 1) + torch.arange(8)
        frequencies = torch.randn(blocks, 8, 8, generator=generator) * 40 / (1 + spectrum) ** 1.5
        self.text = zlib.compress(frequencies.round().to(torch.int16).numpy().tobytes())
        k = torch.arange(8.0)
        self.cosines = torch.cos((2 * k.view(1, 8) + 1) * k.view(8, 1) * torch.pi / 16) * (1 - 0.29289 * (k == 0).view(8, 1)) / 2
        self.quantum = 1.0 + spectrum
        self.side, self.length = side, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        numbers = torch.frombuffer(bytearray(zlib.decompress(self.text)), dtype=torch.int16).view(-1, 8, 8)
        pixels = self.cosines.t() @ (numbers * self.quantum) @ self.cosines
        rows = self.side // 8
        image = pixels.view(3, rows, rows, 8, 8).transpose(2, 3).reshape(3, self.side, self.side)
        return (image + 128).clamp_(0, 255).div_(255), index % 1000


def worker_of(job):
    """The step that a job does with a batch, and what waits for it."""
    if job["model"] == "none":
        return (lambda images, labels: images[:, :, 0, 0].sum().item()), (lambda: None)
    from examples.models import build

    tiny = job["device"] == "cpu"
    model, arguments, loss_fn = build(job["model"], tiny=tiny, batch=job["batch"], device=job["device"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    classes = int(arguments[-1].max()) + 1
    shape = arguments[0].shape[2:]

    def step(images, labels):
        if images.shape[2:] != shape:
            images = torch.nn.functional.interpolate(images, shape)
        if not job["train"]:
            with torch.no_grad():
                return model(images)
        loss_fn(model(images), labels % classes).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, (torch.cuda.synchronize if job["device"] == "cuda" else lambda: None)


def batches_of(job, dataset):
    """Endless, on the job's device."""
    if job["way"] == "shared":
        import regen.share

        loader = regen.share.loader(
            dataset,
            "bench",
            batch_size=job["batch"],
            shuffle=True,
            num_workers=job["workers"],
            consumers=job["jobs"],
            device=job["device"],
            start=job["start"],
        )
        while True:
            yield from loader
    loader = DataLoader(dataset, batch_size=job["batch"], shuffle=True, num_workers=job["workers"], pin_memory=job["device"] == "cuda")
    while True:
        for images, labels in loader:
            yield images.to(job["device"], non_blocking=True), labels.to(job["device"], non_blocking=True)


def run_job(job, barrier, results):
    torch.set_num_threads(1)
    batches = batches_of(job, Compressed(job["side"], job["length"]))
    step, wait = worker_of(job)
    for _ in range(WARM_UP):
        step(*next(batches))
    wait()
    barrier.wait()
    begin, cpu = time.perf_counter(), time.process_time()
    producer = producer_cpu()
    for _ in range(job["batches"]):
        step(*next(batches))
    wait()
    seconds = time.perf_counter() - begin
    results.put(
        {
            "rate": job["batches"] * job["batch"] / seconds,
            "cpu": (time.process_time() - cpu) / job["batches"],
            "producer": (producer_cpu() - producer) / job["batches"],
        }
    )
    barrier.wait()  # nobody leaves while others measure


def producer_cpu():
    """Seconds of the processor that the producer has used, its thread that serves included."""
    lock = pathlib.Path(os.environ["REGEN_INPUT_FOLDER"]) / "input-bench.sock.lock"
    if not lock.exists():
        return 0.0  # every job has a loader of its own
    threads = pathlib.Path("/proc", lock.read_text().split()[0], "task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def run_jobs(jobs):
    context = torch.multiprocessing.get_context("spawn" if jobs[0]["device"] == "cuda" else "fork")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REGEN_INPUT_FOLDER"] = folder
        barrier, results = context.Barrier(len(jobs)), context.SimpleQueue()
        processes = [context.Process(target=run_job, args=(job, barrier, results)) for job in jobs]
        for process in processes:
            process.start()
        found = [results.get() for _ in jobs]
        for process in processes:
            process.join()
        time.sleep(0.2)  # the producer goes as well
    return found


def tell(**line):
    print(json.dumps(line), flush=True)


def measure_cost(options, base):
    for consumers in (1, 2, 3):
        jobs = [{**base, "way": "shared", "jobs": consumers, "workers": 0, "model": "none", "device": "cpu"}] * consumers
        found = run_jobs(jobs)
        tell(
            what="cost",
            consumers=consumers,
            batch=options.batch,
            side=options.side,
            producer_cpu_ms=round(1e3 * max(f["producer"] for f in found), 3),
            consumer_cpu_ms=round(1e3 * sum(f["cpu"] for f in found) / consumers, 3),
            batches_per_second=round(min(f["rate"] for f in found) / options.batch, 2),
        )


def measure_throughput(options, base):
    models = options.models.split(",")
    for jobs in (1, 2, 3):
        sums = {}
        for way, workers in (("separate", options.workers), ("shared", options.workers * jobs)):
            job = {**base, "way": way, "jobs": jobs, "workers": workers, "device": options.device}
            found = run_jobs([{**job, "model": models[i % len(models)]} for i in range(jobs)])
            rates = [round(f["rate"], 1) for f in found]
            sums[way] = sum(rates)
            tell(
                what="throughput",
                jobs=jobs,
                way=way,
                workers=options.workers * jobs,
                models=[models[i % len(models)] for i in range(jobs)],
                train=options.train,
                batch=options.batch,
                images_per_second=round(sums[way], 1),
                of_each=rates,
            )
        tell(what="gain", jobs=jobs, ratio=round(sums["shared"] / sums["separate"], 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64, help="of the square images, a multiple of 8")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=20, help="measured, after the first three")
    parser.add_argument("--workers", type=int, default=1, help="of each job; the shared producer has those of all its jobs")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", default="none", help="of the jobs, from examples/models; none only looks at the batch")
    parser.add_argument("--train", action="store_true", help="steps of a training instead of inference")
    parser.add_argument("--start", choices=["auto", "fork", "spawn"], default="auto")
    parser.add_argument("--only", choices=["cost", "throughput"])
    options = parser.parse_args()
    base = {"side": options.side, "batch": options.batch, "batches": options.batches, "train": options.train, "start": options.start}
    base["length"] = options.batch * (options.batches + WARM_UP)
    if options.only != "throughput":
        measure_cost(options, base)
    if options.only != "cost":
        measure_throughput(options, base)


if __name__ == "__main__":
    main()
