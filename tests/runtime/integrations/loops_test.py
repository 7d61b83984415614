"""Own training loops with accelerate, PEFT and diffusers around a wrapped model: the bits of the same loop without it."""

import copy
import pathlib
import sys

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments"))

import regen
from frameworks import OPTIONS, assert_same_runs, assert_same_state, budget_of_trainer, build, dataset, trained, trainer, twins
from regen.capture import capture

SEED = 3


def loader(data, rows=2):
    return torch.utils.data.DataLoader(data, batch_size=rows)


def left_of(model, optimizer):
    """What a loop leaves behind, by name. The names of a prepared or wrapped model are those of the plain one."""
    state = {f"model {name}": tensor.clone() for name, tensor in model.state_dict().items()}
    for index, entry in optimizer.state_dict()["state"].items():
        state |= {f"optimizer {index} {key}": torch.as_tensor(value).clone() for key, value in entry.items()}
    return state | {"generator": torch.get_rng_state()}


# accelerate

def accelerated(model, data, loss_of=lambda model, batch: model(**batch).loss, mixed_precision=None, accumulate=2, steps=1):
    """Accumulation, clipping, mixed precision: as the examples of Accelerate have it."""
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=mixed_precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(data))
    torch.manual_seed(SEED)
    losses = []
    for _ in range(steps):
        for batch in batches:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach().clone())
    return left_of(accelerator.unwrap_model(model), optimizer) | {f"loss {i}": loss for i, loss in enumerate(losses)}


@pytest.mark.parametrize("mixed_precision", [None, "bf16"])
def test_accelerate(mixed_precision):
    plain, model = twins(build("gpt2"))
    wrapped = regen.wrap(model, budget=0.9, **OPTIONS)
    theirs = accelerated(plain, dataset("gpt2"), mixed_precision=mixed_precision)
    ours = accelerated(wrapped, dataset("gpt2"), mixed_precision=mixed_precision)
    assert_same_state(ours, theirs)
    assert wrapped.regen.passes == 4 and len(wrapped.regen.shapes) == 2


# PEFT

def lora(name="llama", **options):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    torch.manual_seed(1)
    return peft.get_peft_model(build(name), peft.LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear", **options))


def test_lora_in_an_own_loop():
    plain, model = twins(lora())
    wrapped = regen.wrap(model, budget=0.9, **OPTIONS)
    assert_same_state(accelerated(wrapped, dataset("llama")), accelerated(plain, dataset("llama")))


def gradients_made(program):
    """Shapes of the products of the backward pass."""
    values = program["values"]
    return [values[node["outputs"][0]]["sizes"] for node in program["nodes"] if node["phase"] == "backward" and node["op"] == "aten::mm"]


def test_frozen_weights_cost_no_gradient():
    model = lora()
    batch = {name: tensor.unsqueeze(0) for name, tensor in dataset("llama")[0].items()}
    captured = capture(model, (), batch)
    trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for _, kind, name in captured.gradient_results if kind == "parameter"} == trains and all("lora_" in name for name in trains)
    found = gradients_made(captured.program)
    frozen = {tuple(p.shape) for n, p in model.named_parameters() if not p.requires_grad and p.dim() == 2}
    assert not frozen & ({tuple(sizes) for sizes in found} | {tuple(sizes)[::-1] for sizes in found})
    assert [4, 32] in found  # an adapter's
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    whole = gradients_made(capture(model, (), batch).program)
    assert frozen & ({tuple(sizes) for sizes in whole} | {tuple(sizes)[::-1] for sizes in whole}), "what the shapes above are compared with"


@pytest.mark.parametrize("options", [dict(), dict(gradient_checkpointing=True, bf16=True)])
def test_lora_with_a_trainer(options, tmp_path):
    """Adapters are saved as usual."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    plain, model = twins(lora())
    theirs = trained(trainer("llama", plain, tmp_path / "plain", max_steps=3, **options))
    ours = trained(trainer("llama", model, tmp_path / "budget", [budget_of_trainer(0.9)], max_steps=3, **options))
    assert_same_runs(ours, theirs)
    for run, folder in ((theirs, "plain"), (ours, "budget")):
        run.save_model(str(tmp_path / folder))
    kept = [(tmp_path / folder / "adapter_model.safetensors").read_bytes() for folder in ("plain", "budget")]
    assert kept[0] == kept[1] and not (tmp_path / "budget" / "model.safetensors").exists()
    loaded = peft.PeftModel.from_pretrained(build("llama"), tmp_path / "budget")
    assert_same_state({n: t for n, t in loaded.state_dict().items() if "lora" in n}, {n: t for n, t in model.state_dict().items() if "lora" in n})


# diffusers

def denoiser(kind):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    torch.manual_seed(0)
    if kind == "unet":
        return diffusers.UNet2DConditionModel(
            sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    return diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8, patch_size=2, norm_num_groups=1,
        num_embeds_ada_norm=4)


def noise_loss(kind):
    """Noise and timesteps are drawn for each batch."""
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    scheduler = DDPMScheduler(num_train_timesteps=100)

    def loss_of(model, batch):
        noise = torch.randn_like(batch["latents"])
        timesteps = torch.randint(0, 100, (len(noise),), dtype=torch.int64)
        noisy = scheduler.add_noise(batch["latents"], noise, timesteps)
        more = {"encoder_hidden_states": batch["text"]} if kind == "unet" else {"class_labels": batch["labels"]}
        found = model(noisy, timestep=timesteps, return_dict=False, **more)[0]
        return torch.nn.functional.mse_loss(found.float(), noise)

    return loss_of


def latents(count=7):
    generator = torch.Generator().manual_seed(2)
    return [
        {"latents": torch.randn(4, 8, 8, generator=generator), "text": torch.randn(5, 16, generator=generator), "labels": i % 3} for i in range(count)]


@pytest.mark.parametrize("kind, mixed_precision", [("unet", None), ("dit", "bf16")])
def test_diffusers(kind, mixed_precision):
    plain, model = twins(denoiser(kind).train())
    wrapped = regen.wrap(model, budget=0.9, **OPTIONS)
    theirs = accelerated(plain, latents(), noise_loss(kind), mixed_precision)
    ours = accelerated(wrapped, latents(), noise_loss(kind), mixed_precision)
    assert_same_state(ours, theirs)
    assert len(wrapped.regen.shapes) == 2  # whole batches and the last; not one for each timestep
    assert type(copy.deepcopy(wrapped)).__name__ == type(model).__name__
