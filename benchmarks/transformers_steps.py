"""Training steps of Hugging Face models at real sizes on a GPU: plain PyTorch, its checkpointing, torch.compile and regen, each in a process of its own.

    python benchmarks/transformers_steps.py llama gpt2 --ways eager checkpoint compile wrap step --budgets none checkpoint

For every way: milliseconds of a step (median), bytes that the driver counts beyond an idle context (at the end, and at most since the first
step), seconds until the first step, and the losses of the first steps, which regen's must equal bit for bit where `again` does. A budget is
bytes (22.9GiB), `none`, or `checkpoint`: what the row of that way took, or a fraction of it (`0.7checkpoint`). With --kernels the names and
the order of the kernels of a step are compared with eager's. Models have random weights; AdamW. With --csv rows are added to a file.
"""

import argparse
import contextlib
import csv
import datetime
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

STEPS = 3  # whose losses are compared
NO_LIMIT = "130GiB"
GIB = float(1 << 30)
COLUMNS = ["workload", "way", "budget_gib", "ms", "gib", "peak_gib", "over_eager", "over_checkpoint", "first_step_s", "predicted_ms", "gap",
           "losses_equal", "kernels", "commit", "machine", "date", "command"]


@contextlib.contextmanager
def made_on_device(dtype=None):
    """Random weights are drawn on the device, where that takes no time; what drawing took is given back."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(before)
        torch.cuda.empty_cache()


def llama_model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
                         tie_word_embeddings=True)
    ids = torch.randint(0, 128256, (4, 2048), device="cuda")
    with made_on_device(torch.bfloat16):
        return LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def llama():
    return *llama_model(), None


def lora():
    """The same with adapters of rank 16 on all projections."""
    from peft import LoraConfig, get_peft_model

    model, batch = llama_model()
    projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=projections, task_type="CAUSAL_LM")), batch, None


def gpt2():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=24, n_embd=1024, n_head=16)
    ids = torch.randint(0, config.vocab_size, (16, 1024), device="cuda")
    with made_on_device():
        return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}, torch.bfloat16


def bert():
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
    ids = torch.randint(0, config.vocab_size, (32, 512), device="cuda")
    with made_on_device():
        return BertForMaskedLM(config), {"input_ids": ids, "labels": ids}, torch.bfloat16


def vit():
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16, intermediate_size=4096, num_labels=1000)
    images = torch.randn(128, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (128,), device="cuda")
    with made_on_device():
        return ViTForImageClassification(config), {"pixel_values": images, "labels": labels}, torch.bfloat16


WORKLOADS = {"llama": llama, "gpt2": gpt2, "bert": bert, "vit": vit, "lora": lora}
WAYS = ("eager", "again", "checkpoint", "compile", "wrap", "step")  # again: eager once more, to see whether it repeats its bits


class UsedBytes:
    """Bytes of the device in use beyond an idle context, and the most of it while it is watched."""

    def __init__(self):
        import torch

        torch.zeros(1, device="cuda")
        self.idle = torch.cuda.mem_get_info()[0]
        self.most = 0

    def now(self):
        import torch

        return self.idle - torch.cuda.mem_get_info()[0]

    @contextlib.contextmanager
    def watched(self):
        stopped = threading.Event()

        def watch():
            while not stopped.wait(0.002):
                self.most = max(self.most, self.now())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            stopped.set()
            watcher.join()
            self.most = max(self.most, self.now())


def kernels_of(step):
    """Names of the kernels of one step, in the order in which they began; copies and fills left out."""
    import torch
    from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == DeviceType.CUDA and not e.name.startswith(("Memcpy", "Memset"))]
    return [e.name for e in sorted(events, key=lambda e: e.time_range.start)]


def is_best(session):
    """Whether no search beside the training can find more."""
    return session.plan.session.report.gap <= 5e-4


def measure(workload, way, budget, options):
    """One way of one workload, in this process."""
    import torch

    import regen

    sys.stdin.readline()  # until the GPU is free
    used = UsedBytes()
    torch.manual_seed(0)
    model, batch, autocast = WORKLOADS[workload]()
    model.train()
    if way == "checkpoint":
        if workload == "lora":
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    casts = torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None)
    planned = {"cache": options.cache or False} | ({"improve": False} if options.fixed else {})
    begin = time.perf_counter()
    session = None
    with casts:
        if way == "compile":
            model = torch.compile(model)
        if way == "wrap":
            model = regen.wrap(model, (), budget or NO_LIMIT, kwargs=batch, **planned)
            session = model.regen
        if way == "step":
            session = regen.step(model, None, optimizer, (), budget or NO_LIMIT, kwargs=batch, **planned)

    def step():
        if way == "step":
            with casts:
                return session(**batch)
        optimizer.zero_grad(set_to_none=True)
        with casts:
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item()]
    first = time.perf_counter() - begin
    with used.watched():
        losses += [step().item() for _ in range(STEPS - 1)]
        if not options.fixed and session is not None and not is_best(session):
            time.sleep(options.search)  # the search beside the training
            losses += [step().item() for _ in range(2)]
    # Events mark the steps; the host does not wait for one before it issues the next.
    events = [torch.cuda.Event(enable_timing=True) for _ in range(options.repeats + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    row = {"workload": workload, "way": way, "budget_gib": round(budget / GIB, 2) if budget else "none",
           "ms": round(statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events)), 1),
           "gib": round(used.now() / GIB, 2), "peak_gib": round(max(used.most, used.now()) / GIB, 2), "first_step_s": round(first, 1), "losses": losses[:STEPS]}
    if session is not None:
        report = session.plan.session.report
        row |= {"predicted_ms": round(report.cost * 1e3, 1), "gap": round(report.gap, 4)}
        if options.verbose:
            print(session.plan, file=sys.stderr)
    if options.kernels:
        pathlib.Path(options.kernels, f"{workload}-{way}-{row['budget_gib']}.json").write_text(json.dumps(kernels_of(step)))
    return row


def budget_of(text, rows):
    """Bytes, or None for no limit."""
    if text == "none":
        return None
    if text.endswith("checkpoint"):
        return int(float(text.removesuffix("checkpoint") or 1) * GIB * rows["checkpoint"]["gib"])
    return int(float(text.removesuffix("GiB")) * GIB)


def same_kernels(folder, row):
    """Whether a step with everything kept launches eager's kernels in eager's order."""
    names = (f"{row['way']}-{row['budget_gib']}", "eager-none")
    ours, theirs = (json.loads(pathlib.Path(folder, f"{row['workload']}-{name}.json").read_text()) for name in names)
    if ours == theirs:
        return f"equal ({len(ours)})"
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"{len(ours)} for {len(theirs)}, differ at {first}: {ours[first:first + 1]} for {theirs[first:first + 1]}"


class Children:
    """Processes of one way each. The next one imports what it needs while a run goes on, and waits for a line before it touches the GPU."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.waiting = []

    def start(self):
        command = [sys.executable, __file__, "--inside", *self.arguments]
        self.waiting.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def run(self, task, more, patience):
        if not self.waiting:
            self.start()
        child = self.waiting.pop()
        if more:
            self.start()
        try:
            output, errors = child.communicate(json.dumps(task) + "\n\n", timeout=patience)
        except subprocess.TimeoutExpired:
            child.kill()
            return None, f"stopped after {patience} s"
        if child.returncode == 0:
            print(errors if "--verbose" in self.arguments else "", end="", flush=True)
            return json.loads(output.strip().splitlines()[-1]), ""
        return None, " / ".join(line.strip() for line in errors.strip().splitlines()[-3:])[-700:]


def run_all(options, arguments, folder):
    tasks = [(workload, way, budget) for workload in options.workloads for way in options.ways
             for budget in (options.budgets if way in ("wrap", "step") else ["none"])]
    children, rows, written = Children(arguments), {}, []
    for index, (workload, way, text) in enumerate(tasks):
        try:
            budget = budget_of(text, rows.get(workload, {}))
        except KeyError:
            print(f"{workload} {way}: '{text}' has no row to be a part of", flush=True)
            continue
        row, error = children.run([workload, way, budget], index + 1 < len(tasks), options.patience)
        if row is None:
            print(f"{workload} {way} {text}: {error}", flush=True)
            continue
        known = rows.setdefault(workload, {})
        known.setdefault(way, row)
        for name in ("eager", "checkpoint"):
            row[f"over_{name}"] = round(row["ms"] / known[name]["ms"], 3) if name in known else ""
        row["losses_equal"] = "yes" if "eager" in known and row["losses"] == known["eager"]["losses"] else ("no" if "eager" in known else "")
        if folder and "eager" in known and way in ("wrap", "step") and text == "none":
            row["kernels"] = same_kernels(folder, row)
        print(json.dumps({name: value for name, value in row.items() if name != "losses"}), flush=True)
        written.append(row)
    if options.csv:
        path = pathlib.Path(options.csv)
        new = not path.exists()
        origin = {"commit": options.commit, "machine": options.machine, "date": datetime.date.today().isoformat(),
                  "command": f"python benchmarks/transformers_steps.py {' '.join(options.workloads)}" + (" --fixed" if options.fixed else "")}
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
            if new:
                writer.writeheader()
            writer.writerows(row | origin for row in written)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--budgets", nargs="+", default=["none"], help="of wrap and step; none: no limit")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--patience", type=float, default=180, help="seconds after which a run is stopped")
    parser.add_argument("--fixed", action="store_true", help="no search beside the training")
    parser.add_argument("--search", type=float, default=0, help="seconds for the search beside the training before steps are timed")
    parser.add_argument("--cache", help="folder of measurements and plans; none by default")
    parser.add_argument("--kernels", action="store_true", help="compare the kernels with eager's")
    parser.add_argument("--kernel-folder", dest="folder", help=argparse.SUPPRESS)
    parser.add_argument("--csv", help="file that rows are added to")
    parser.add_argument("--commit", default="unknown", help="for the columns of the file")
    parser.add_argument("--machine", default="unknown")
    parser.add_argument("--verbose", action="store_true", help="print plans")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        import torch  # noqa: F401
        import transformers  # noqa: F401

        import regen  # noqa: F401

        workload, way, budget = json.loads(sys.stdin.readline())
        options.kernels = options.folder
        print(json.dumps(measure(workload, way, budget, options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        passed = ["--repeats", str(options.repeats), "--search", str(options.search)]
        passed += ["--fixed"] if options.fixed else []
        passed += ["--verbose"] if options.verbose else []
        passed += ["--cache", options.cache] if options.cache else []
        passed += ["--kernel-folder", folder] if options.kernels else []
        run_all(options, passed, folder if options.kernels else None)


if __name__ == "__main__":
    main()
