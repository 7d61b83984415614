"""regen.share.loader: jobs as processes that share one reader."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import regen.share
from eventually import eventually
from regen import _runtime
from regen.share._batches import Batches

ROOT = Path(__file__).resolve().parents[3]
context = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    torch.set_num_threads(1)
    path = tempfile.mkdtemp(prefix="regen-loader-")
    monkeypatch.setenv("REGEN_INPUT_FOLDER", path)
    yield Path(path)
    assert eventually(lambda: not producers(path)), "a producer is left although nobody is attached"
    shutil.rmtree(path)


class Images:
    """Items that hold their index; every reading leaves a byte in a file."""

    def __init__(self, folder, length=20, width=1000, fails_at=None):
        self.reads = folder / "reads"
        self.length, self.width, self.fails_at = length, width, fails_at

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with open(self.reads, "ab") as file:
            file.write(b"r")
        if index == self.fails_at:
            raise ValueError(f"row {index} is bad")
        return {"x": torch.arange(self.width) * index, "y": index, "name": f"item {index}"}


def count(dataset):
    return os.path.getsize(dataset.reads)


def producers(folder):
    """Processes that listen in the folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(f"{folder}/") and os.readlink(link).endswith(".lock"):
                found.append(int(link.parts[2]))
        except OSError:
            pass
    return found


def checksum(batch):
    return int(batch["x"].sum()), batch["y"].tolist(), batch["name"]


def job(queue, dataset, arguments, epochs=1, pause=0.0, limit=None):
    """What a training script would do; gives the checksums of each epoch, or the error."""
    try:
        with regen.share.loader(dataset, "images", **arguments) as loader:
            seen = []
            for _ in range(epochs):
                epoch = []
                for batch in loader:
                    epoch.append(checksum(batch))
                    time.sleep(pause)
                    if limit is not None and len(epoch) == limit:
                        break
                seen.append(epoch)
            queue.put((seen, loader.lost))
    except Exception as error:
        queue.put((f"{type(error).__name__}: {error}", 0))


def run_jobs(number, *arguments, **options):
    queue = context.SimpleQueue()
    jobs = [context.Process(target=job, args=(queue, *arguments), kwargs=options) for _ in range(number)]
    for process in jobs:
        process.start()
    results = [queue.get() for _ in jobs]
    for process in jobs:
        process.join(60)
        assert process.exitcode == 0
    return results


def expected(dataset, number, **arguments):
    """The plain way: a DataLoader over the same order."""
    batches = Batches(dataset, arguments["batch_size"], arguments.get("shuffle", False), arguments.get("seed", 0), False, 0, None)
    return [[checksum(batch) for batch in batches.at(epoch, 0)] for epoch in range(number)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_all_see_the_same_and_each_item_is_read_once(folder, number):
    dataset = Images(folder)
    arguments = {"batch_size": 3, "shuffle": True, "seed": 5, "epochs": 2, "consumers": number}
    results = run_jobs(number, dataset, arguments, epochs=2)
    assert count(dataset) == 40
    assert all(result == (expected(dataset, 2, **arguments), 0) for result in results)
    for epoch in results[0][0]:
        assert sorted(index for _, indices, _ in epoch for index in indices) == list(range(20))
    assert results[0][0][0] != results[0][0][1], "another order in the second epoch"


def test_workers_of_a_data_loader_change_nothing(folder):
    dataset = Images(folder)
    arguments = {"batch_size": 4, "shuffle": True, "epochs": 1, "num_workers": 2, "consumers": 2}
    results = run_jobs(2, dataset, arguments)
    assert count(dataset) == 20
    assert all(result == (expected(dataset, 1, **arguments), 0) for result in results)


def test_it_is_the_memory_itself_and_private_when_changed(folder):
    dataset = Images(folder, width=5000)
    arguments = {"batch_size": 2, "slots": 2, "consumers": 2}
    first = regen.share.loader(dataset, "images", **arguments)
    second = regen.share.loader(dataset, "images", **arguments)
    for expected_batch in Batches(dataset, 2, False, 0, False, 0, None).at(0, 0):
        mine, other = next(first), next(second)
        assert torch.equal(mine["x"], expected_batch["x"]) and torch.equal(other["x"], expected_batch["x"])
        mine["x"].fill_(-1)
        assert torch.equal(other["x"], expected_batch["x"]), "nobody else sees it"
    first.close()
    second.close()
    assert mine["x"].eq(-1).all(), "batches in use outlive the loader"


def test_a_slot_returns_with_the_last_tensor_over_it(folder):
    loader = regen.share.loader(Images(folder, length=100), "images", slots=2, batch_size=1)
    kept = next(loader)["x"][:, 3:5]  # a view of one tensor of the batch
    for batch in loader:
        del batch
        break
    places = {next(loader)["x"].data_ptr() for _ in range(20)}
    assert len(places) == 1 and kept.untyped_storage().data_ptr() not in places
    assert kept.tolist() == [[0, 0]]
    del kept
    places = {next(loader)["x"].data_ptr() for _ in range(20)}
    assert len(places) == 2
    loader.close()


def test_an_epoch_left_early_is_not_read_to_its_end(folder):
    dataset = Images(folder, length=1000)
    loader = regen.share.loader(dataset, "images", batch_size=10, slots=4)
    for epoch in range(3):
        for batch in loader:
            assert loader.epoch == epoch
            assert batch["y"].tolist() == list(range(10))
            break
    loader.close()
    assert count(dataset) < 300
    assert len(loader) == 100


def test_a_slow_job_waits_or_skips(folder):
    dataset = Images(folder, length=60)
    plain = expected(dataset, 1, batch_size=1)[0]
    for policy in ("wait", "skip"):
        arguments = {"batch_size": 1, "epochs": 1, "consumers": 2, "policy": policy, "slots": 4}
        queue = context.SimpleQueue()
        slow = context.Process(target=job, args=(queue, dataset, arguments), kwargs={"pause": 0.02})
        slow.start()
        fast = run_jobs(1, dataset, arguments)[0]
        slow.join(60)
        (seen,), lost = queue.get()
        assert fast == ([plain], 0)
        assert len(seen) + lost == 60 and (lost == 0) == (policy == "wait")
        order = [plain.index(batch) for batch in seen]
        assert order == sorted(set(order)), "each at most once, in order"


def test_nested_batches_of_varying_shapes(folder):
    items = [
        (torch.randn(2, 3), [1, 2.5, True, None, "text"], {"a": torch.zeros(0, 4), 7: torch.tensor(3, dtype=torch.int8)}),
        (torch.randn(5, 1).half(), [torch.tensor([1 + 2j])], {"a": torch.ones(4, 6).t(), "b": torch.tensor([True, False])}),
        {"only": torch.randn(3).bfloat16().expand(2, 3)},
    ]
    with regen.share.loader(items, "nested", batch_size=None, epochs=1, slot_bytes=10000) as loader:
        for found, item in zip(loader, DataLoader(items, batch_size=None), strict=True):
            assert same(found, item)


def same(a, b):
    if isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10))


def test_iterable_datasets_and_ready_made_loaders():
    plain = [batch.tolist() for batch in DataLoader(Stream(), batch_size=4)]
    for number, dataset in enumerate((Stream(), DataLoader(Stream(), batch_size=4), map(torch.tensor, range(10)))):
        with regen.share.loader(dataset, f"stream-{number}", batch_size=4, epochs=1) as loader:
            assert [batch.tolist() for batch in loader] == plain
    with pytest.raises(TypeError, match="does not know how many"):
        len(loader)


def test_an_error_of_the_dataset_is_told_to_all(folder):
    results = run_jobs(3, Images(folder, fails_at=7), {"batch_size": 2, "consumers": 3})
    for text, _ in results:
        assert text == "RegenError: the dataset of the shared input 'images' raised ValueError: row 7 is bad"


def test_what_does_not_fit_or_cannot_travel_is_one_error(folder):
    with regen.share.loader([torch.zeros(10), torch.zeros(2000)], "large", batch_size=None, slot_bytes=4096) as loader:
        next(loader)
        with pytest.raises(regen.RegenError, match="batch 1 of epoch 0: the batch takes 8,128 bytes, a slot has 4,096, expected a larger"):
            next(loader)
    with regen.share.loader([{"a": [1, object()]}], "object", batch_size=None) as loader:
        with pytest.raises(regen.RegenError, match=r"batch\['a'\]\[1\] is a object, expected tensors"):
            next(loader)
    with regen.share.loader([], "empty") as loader:
        with pytest.raises(regen.RegenError, match="epoch 0 has no batch"):
            next(loader)


def test_bad_arguments(folder):
    dataset = Images(folder)
    for problem, arguments in [
        ("batch_size is 0, expected", {"batch_size": 0}),
        ("slots is 1, expected a whole number from 2", {"slots": 1}),
        ("policy is 'drop', expected 'wait' or 'skip'", {"policy": "drop"}),
        ("join is 'later', expected", {"join": "later"}),
        ("device is .*, expected 'cpu'", {"device": "tpu"}),
        ("start is 'thread', expected", {"start": "thread"}),
        ("epochs is -1, expected", {"epochs": -1}),
    ]:
        with pytest.raises(ValueError, match=problem):
            regen.share.loader(dataset, "bad", **arguments)
    with pytest.raises(ValueError, match="shuffle is True"):
        regen.share.loader(Stream(), "bad", shuffle=True)
    with pytest.raises(TypeError, match="dataset is a int"):
        regen.share.loader(3, "bad")
    with pytest.raises(regen.RegenError, match="bad name of a shared input '../up'"):
        regen.share.loader(dataset, "../up")
    with regen.share.loader(dataset, "images", batch_size=4):
        with pytest.raises(regen.RegenError, match="has batch_size 4, this job asks for 5, expected the same or another name"):
            regen.share.loader(dataset, "images", batch_size=5)


def endless(queue, dataset, arguments, stop):
    """Counts the batches, and which are not what plain reading gives."""
    loader = regen.share.loader(dataset, "images", **arguments)
    source = Batches(dataset, arguments["batch_size"], True, 0, False, 0, None)
    plain = {epoch: [checksum(batch) for batch in source.at(epoch, 0)] for epoch in range(3)}
    taken, wrong = 0, 0
    while not stop.is_set():
        index = 0
        for batch in loader:
            right = checksum(batch) == plain.setdefault(loader.epoch, [checksum(b) for b in source.at(loader.epoch, 0)])[index]
            taken, wrong, index = taken + 1, wrong + (not right), index + 1
            if stop.is_set():
                break
    queue.put((taken, wrong, loader.producers_lost))


def test_jobs_and_producers_are_killed_at_random(folder):
    dataset = Images(folder, length=12)
    arguments = {"batch_size": 2, "shuffle": True, "slots": 4, "join": "epoch"}  # batches are counted from its beginning
    queue, stop = context.SimpleQueue(), context.Event()
    steady = [context.Process(target=endless, args=(queue, dataset, arguments, stop)) for _ in range(2)]
    for process in steady:
        process.start()
    generator = torch.Generator().manual_seed(1)
    killed = 0
    for round in range(30):
        victim = context.Process(target=endless, args=(queue, dataset, arguments, stop))
        victim.start()
        time.sleep(0.05 * torch.rand((), generator=generator).item())
        for producer in producers(folder) if round % 3 == 0 else []:
            os.kill(producer, signal.SIGKILL)
            killed += 1
        victim.kill()
        victim.join()
    assert killed >= 5
    before = count(dataset)
    # A producer that was killed last is replaced by a process that imports torch, which takes seconds on a busy machine.
    assert any(eventually(lambda: count(dataset) > before + 100) for _ in range(6)), "they go on"
    stop.set()
    results = [queue.get() for _ in steady]
    for process in steady:
        process.join(60)
        assert process.exitcode == 0
    assert all(taken > 0 and wrong == 0 for taken, wrong, _ in results), results


def test_no_descriptor_is_left(folder):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    regen.share.loader(Images(folder), "images", batch_size=4).close()
    before = open_files()
    for _ in range(5):
        with regen.share.loader(Images(folder), "images", batch_size=4) as loader:
            for batch in loader:
                del batch
    del loader
    assert open_files() == before


SCRIPT = """
import sys, torch, regen.share

class Squares:
    def __len__(self): return 6
    def __getitem__(self, index): return torch.tensor(index * index)

{guard}
    with regen.share.loader(Squares(), "squares", batch_size=2, epochs=1, start="spawn") as loader:
        print([batch.tolist() for batch in loader])
"""


def test_a_producer_in_a_new_interpreter(folder):
    for guard, good in (('if __name__ == "__main__":', True), ("if True:", False)):
        script = folder / "train.py"
        script.write_text(SCRIPT.format(guard=guard))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=120)
        if good:
            assert (done.returncode, done.stdout) == (0, "[[0, 1], [4, 9], [16, 25]]\n"), done.stderr
        else:
            assert done.returncode == 1 and "expected it under if __name__ == '__main__':" in done.stderr


def test_a_dataset_that_cannot_be_sent_to_a_new_interpreter(folder):
    with pytest.raises(regen.RegenError, match="cannot be sent to its producer: .*, expected one that can be pickled"):
        regen.share.loader(map(lambda x: x, [1]), "lambda", start="spawn")  # noqa: C417  a lambda cannot be pickled


def test_a_dataset_of_tensors_goes_to_a_new_interpreter(folder):
    with regen.share.loader(torch.utils.data.TensorDataset(torch.arange(6.0)), "tensors", batch_size=3, epochs=1, start="spawn") as loader:
        assert [batch[0].tolist() for batch in loader] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_on_a_gpu_without_cuda_is_one_error(folder):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="start is 'fork', expected 'auto' or 'spawn' on a GPU"):
        regen.share.loader([1.0, 2.0], "gpu", device="cuda", start="fork")
    with regen.share.loader([1.0, 2.0], "gpu", device="cuda") as loader:
        with pytest.raises(regen.RegenError, match="has no CUDA, expected device='cpu'"):
            next(loader)


def test_a_tensor_batch_costs_its_bytes_and_a_head():
    assert _runtime.feed_batch_bytes(torch.zeros(1000)) < 4064 + 300
