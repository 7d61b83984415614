"""Training steps of Hugging Face models at real sizes on a GPU: plain PyTorch, its checkpointing and regen, each in a process of its own.

    python benchmarks/transformers_steps.py llama --ways eager checkpoint wrap --budgets none 22.9GiB

For every way: milliseconds of a step (median), bytes that the driver counts beyond an idle context, seconds until the first step, and the losses of
the first steps, which must be those of eager bit for bit. Models have random weights; AdamW.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "python"), str(pathlib.Path(__file__).resolve().parents[1])]

STEPS = 3  # whose losses are compared


def llama():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
    ids = torch.randint(0, 128256, (4, 2048), device="cuda")
    return LlamaForCausalLM(config).to("cuda", torch.bfloat16), {"input_ids": ids, "labels": ids}, None


def gpt2():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=24, n_embd=1024, n_head=16)
    ids = torch.randint(0, config.vocab_size, (16, 1024), device="cuda")
    return GPT2LMHeadModel(config).cuda(), {"input_ids": ids, "labels": ids}, torch.bfloat16


def bert():
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
    ids = torch.randint(0, config.vocab_size, (32, 512), device="cuda")
    return BertForMaskedLM(config).cuda(), {"input_ids": ids, "labels": ids}, torch.bfloat16


def vit():
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16, intermediate_size=4096, num_labels=1000)
    images = torch.randn(128, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (128,), device="cuda")
    return ViTForImageClassification(config).cuda(), {"pixel_values": images, "labels": labels}, torch.bfloat16


WORKLOADS = {"llama": llama, "gpt2": gpt2, "bert": bert, "vit": vit}


def measure(workload, way, budget, repeats):
    """One way of one workload, in this process."""
    import torch

    import regen

    torch.zeros(1, device="cuda")
    idle = torch.cuda.mem_get_info()[0]
    torch.manual_seed(0)
    model, batch, autocast = WORKLOADS[workload]()
    model.train()
    if way == "checkpoint":
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    casts = torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None)
    begin = time.perf_counter()
    if way == "wrap":
        with casts:
            model = regen.wrap(model, (), "130GiB" if budget == "none" else budget, kwargs=batch)
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with casts:
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(STEPS):
        losses.append(step().item())
        if len(losses) == 1:
            first = time.perf_counter() - begin
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    ms = statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))
    used = (idle - torch.cuda.mem_get_info()[0]) / 2**30
    return {"workload": workload, "way": way, "budget": budget, "ms": round(ms, 1), "gib": round(used, 2), "first_step_s": round(first, 1), "losses": losses}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--ways", nargs="+", choices=["eager", "checkpoint", "wrap"], default=["eager", "checkpoint", "wrap"])
    parser.add_argument("--budgets", nargs="+", default=["none"], help="of wrap; none: no limit")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measure(arguments.workloads[0], arguments.ways[0], arguments.budgets[0], arguments.repeats)))
        return
    for workload in arguments.workloads:
        for way in arguments.ways:
            for budget in arguments.budgets if way == "wrap" else ["none"]:
                command = [sys.executable, __file__, workload, "--ways", way, "--budgets", budget, "--repeats", str(arguments.repeats), "--inside"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                lines = done.stdout.strip().splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()
                print(lines[-1] if done.returncode == 0 else f"{workload} {way} {budget}: {' / '.join(lines[-3:])[-600:]}", flush=True)


if __name__ == "__main__":
    main()
