"""Jobs in processes of their own that read images, each by a loader of its own or all by a shared one.

The processes, and what they read from, live as long as the crew: a row costs neither a start of CUDA nor one of a producer.

    with Crew(2, Setting(device="cuda", side=224, cores=16)) as crew:
        found = crew.measure("shared", ["resnet50", "vgg16"], batch=32, train=True, seconds=2)
"""

import collections
import os
import pathlib
import socket
import struct
import sys
import tempfile
import time
import traceback
import zlib
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

SLOTS = 8
WARM_UP = 3
PILOT = 8  # batches that say how many make up the seconds asked for
MOST_BATCHES = 1000
NO_MODEL = "none"  # only looks at the batch


class Compressed:
    """Images as deflated 8x8 blocks of quantized frequencies: decoded as JPEGs are, inflated, scaled, transformed back."""

    def __init__(self, side, length=100_000):
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


class Ready:
    """The same images, decoded before: a producer of these does nothing but hand out."""

    def __init__(self, side, length=100_000):
        self.image, self.length = Compressed(side)[0][0], length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.image, index % 1000


@dataclass
class Setting:
    device: str = "cpu"
    side: int = 64
    cores: int = 2  # that decode: workers of all loaders together
    in_producer: bool = False  # decode in the producer itself, without workers: its cost is one number
    decode: bool = True
    start: str = "fork"  # of the jobs and the producer; with CUDA always "spawn"

    def __post_init__(self):
        self.start = "spawn" if self.device == "cuda" else self.start

    def workers(self, loaders):
        return 0 if self.in_producer else max(1, self.cores // loaders)


class Job:
    """One process of the crew. What it reads from stays open until another input is asked for."""

    def __init__(self, setting):
        self.setting, self.dataset = setting, (Compressed if setting.decode else Ready)(setting.side)
        self.input, self.batches, self.loader = None, None, None
        self.model, self.step = None, None

    def prepare(self, way, jobs, model, batch, train):
        """Has the input and the model ready, and what was read ahead used up; returns the seconds of a batch."""
        workers = self.setting.workers(1 if way == "shared" else jobs)
        # All jobs of an input begin with the same batch: one that came later would be behind when the others stop to read.
        if self.input != (way, batch, jobs):
            self.close_input()
            self.input, self.batches = (way, batch, jobs), self._open(way, jobs, batch, workers)
        if self.model != (model, batch, train):
            self.step = None
            self.model, self.step = (model, batch, train), self._step_of(model, batch, train)
        self._run(2 * workers + SLOTS + WARM_UP)
        return self._run(PILOT)["seconds"] / PILOT

    def measure(self, count):
        return self._run(count)

    def close_input(self):
        if self.loader is not None:
            self.loader.close()
        self.input, self.batches, self.loader = None, None, None

    def _run(self, count):
        cpu, producer, begin = time.process_time(), self._producer_cpu(), time.perf_counter()
        done = collections.deque()
        for _ in range(count):
            self.step(*next(self.batches))
            if self.setting.device == "cuda":  # at most two steps are on the device
                done.append(torch.cuda.Event())
                done[-1].record()
                if len(done) > 2:
                    done.popleft().synchronize()
        if self.setting.device == "cuda":
            torch.cuda.synchronize()
        return {"batches": count, "seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu,
                "producer_cpu": self._producer_cpu() - producer}

    def _open(self, way, jobs, batch, workers):
        device = self.setting.device
        if way == "shared":
            import regen.share

            room = batch * (3 * self.setting.side**2 * 4 + 8) + 65536
            self.loader = regen.share.loader(
                self.dataset, f"batch-{batch}-{jobs}", batch_size=batch, shuffle=True, num_workers=workers, consumers=jobs, slots=SLOTS,
                slot_bytes=room, device=device, start=self.setting.start)
            return _endless(self.loader)
        loader = DataLoader(self.dataset, batch_size=batch, shuffle=True, num_workers=workers, pin_memory=device == "cuda")
        return ((images.to(device, non_blocking=True), labels.to(device, non_blocking=True)) for images, labels in _endless(loader))

    def _step_of(self, name, batch, train):
        if name == NO_MODEL:
            return lambda images, labels: images[:, :, 0, 0].sum().item()
        from examples.models import build

        model, arguments, loss_fn = build(name, tiny=self.setting.device == "cpu", batch=batch, device=self.setting.device)
        model.train(train)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        classes, shape = int(arguments[-1].max()) + 1, arguments[0].shape[2:]

        def step(images, labels):
            if images.shape[2:] != shape:
                images = torch.nn.functional.interpolate(images, shape)
            if not train:
                with torch.no_grad():
                    return model(images)
            loss_fn(model(images), labels % classes).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    def _producer_cpu(self):
        """Seconds of the processor that the producer has used, its thread that serves included, its workers not."""
        if self.loader is None:
            return 0.0
        folder = pathlib.Path("/proc", str(producer_process(self.loader.name)))
        try:
            return sum(int(thread.read_text().split()[0]) for thread in folder.glob("task/*/schedstat")) / 1e9
        except (OSError, IndexError):
            ticks = (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
            return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _endless(loader):
    while True:
        yield from loader


def producer_process(name):
    """The process that listens there, as the kernel reports it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.connect(os.path.join(os.environ["REGEN_INPUT_FOLDER"], f"input-{name}.sock"))
        return struct.unpack("iII", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def _serve(pipe, setting):
    torch.set_num_threads(1)
    job = Job(setting)
    while (call := pipe.recv()) is not None:
        try:
            pipe.send((getattr(job, call[0])(*call[1:]), None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))
    job.close_input()


class Crew:
    def __init__(self, jobs, setting):
        self.setting = setting
        self.folder = tempfile.TemporaryDirectory(prefix="regen-input-")
        os.environ["REGEN_INPUT_FOLDER"] = self.folder.name
        context = torch.multiprocessing.get_context(setting.start)
        self.pipes, self.processes = [], []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_serve, args=(theirs, setting)))
            self.processes[-1].start()
            self.pipes.append(ours)
            theirs.close()

    def measure(self, way, models, batch, train, seconds):
        """One job for each model at the same time; what each did, in their order, with its images in a second."""
        jobs = range(len(models))
        paces = self._all([("prepare", way, len(models), model, batch, train) for model in models])
        # Jobs that share go in step: a job that stops early would hold up the others.
        counts = [max(PILOT, min(MOST_BATCHES, int(seconds / (max(paces) if way == "shared" else paces[i])))) for i in jobs]
        found = self._all([("measure", count) for count in counts])
        return [{**result, "images_per_second": result["batches"] * batch / result["seconds"]} for result in found]

    def close_inputs(self):
        self._all([("close_input",)] * len(self.pipes))

    def _all(self, calls):
        for pipe, call in zip(self.pipes, calls):
            pipe.send(call)
        answers = []
        for pipe, _ in zip(self.pipes, calls):
            answer, error = pipe.recv()
            if error is not None:
                self.stop()
                sys.exit(f"a job failed:\n{error}")
            answers.append(answer)
        return answers

    def stop(self):
        """Without waiting for whatever they do."""
        for process in self.processes:
            process.kill()

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        for pipe, process in zip(self.pipes, self.processes):
            if failure is not None:
                process.kill()
            elif process.is_alive():
                pipe.send(None)
        for process in self.processes:
            process.join()
        for _ in range(200):  # producers end when no job is attached
            if not list(pathlib.Path(self.folder.name).glob("*.sock")):
                break
            time.sleep(0.05)
        self.folder.cleanup()
