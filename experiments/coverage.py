"""Which architectures of transformers train under `regen.wrap`, bit for bit: one row each, from their default configurations at tiny sizes.

    python experiments/coverage.py [--only llama,bart] [--kind causal] [--fractions 1.0,0.7] [--capture-only] [--operators] [--csv FILE]

Columns: captured or the message; nodes, decisions (values of the batch that the model's code reads), seconds of the capture, functions that run as
islands, and for each budget whether three steps had plain PyTorch's loss, gradients, buffers and generators (torch's, NumPy's, Python's) to the last
bit. A budget is a fraction of the range between the least that works and what keeping everything takes. `--csv FILE` adds each row to a file as soon as
it is measured; docs/reference/covered-models.md is made from results/coverage.csv by tools/covered_models.py.
"""

import argparse
import copy
import csv
import dataclasses
import importlib.metadata
import itertools
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
import transformers as hf
from torch.utils._python_dispatch import TorchDispatchMode

import regen
from regen._capture.traced.tracer import Tracer
from regen.capture import capture

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import results_measure

STEPS = 3
MEASURED = [1.0, 0.7]  # the fractions that the columns of a CSV are for
COLUMNS = ["network", "library", "version", "kind", "captured", "islands", "nodes", "capture_seconds", "equal_at_100_percent", "equal_at_70_percent"]
RESERVE = 1 << 20  # bytes for the caller's optimizer and outputs
WORK = 20_000
TEXT = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2)
GPT2 = dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER_DECODER = dict(
    vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
    decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2)
T5 = dict(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0, decoder_start_token_id=0)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, num_labels=4)
STAGES = dict(hidden_sizes=[8, 16], depths=[1, 1], num_labels=4)
AUDIO = dict(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, conv_dim=[16, 16], conv_stride=[5, 4],
    conv_kernel=[10, 8], num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_labels=4, pad_token_id=0)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_routed_experts=4)


def tokens(n: int = 2, length: int = 12, high: int = 64) -> torch.Tensor:
    return torch.randint(3, high, (n, length))


def causal() -> dict[str, Any]:
    ids = tokens()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def masked() -> dict[str, Any]:
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}


def seq2seq() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": torch.ones(2, 12, dtype=torch.long), "labels": tokens(length=7)}


def image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 3])}


def audio() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 800), "labels": torch.tensor([0, 3])}


def features() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 16, 40), "labels": tokens(length=7)}


def pair() -> dict[str, Any]:
    return {"input_ids": tokens(length=8), "attention_mask": torch.ones(2, 8, dtype=torch.long), "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True}


def without(batch: Callable[[], dict[str, Any]], name: str) -> Callable[[], dict[str, Any]]:
    """The same batch less one entry."""
    return lambda: {k: v for k, v in batch().items() if k != name}


@dataclasses.dataclass
class Architecture:
    """A model class with a small configuration and a batch."""

    name: str
    kind: str
    model: str
    config: str
    options: dict[str, Any]
    batch: Callable[[], dict[str, Any]]
    sub: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def library(self) -> str:
        return self.config if self.config in ("diffusers", "peft") else "transformers"

    def build(self) -> torch.nn.Module:
        if self.config == "diffusers":
            import diffusers

            return getattr(diffusers, self.model)(**self.options).train()
        if self.config == "peft":
            import peft

            return peft.get_peft_model(next(a for a in ARCHITECTURES if a.name == self.model).build(), peft.LoraConfig(**self.options)).train()
        config_class = getattr(hf, self.config)
        options = {**self.options, **self.sub}
        return getattr(hf, self.model)(config_class(**options)).train()


def of(kind: str, batch: Callable[[], dict[str, Any]], shared: dict[str, Any], rows: dict[str, Any]) -> list[Architecture]:
    """`rows`: name -> (prefix of the classes, head) or with further options."""
    made = []
    for name, (prefix, head, *more) in rows.items():
        options, own = {**shared, **(more[0] if more else {})}, more[1] if len(more) > 1 else batch
        made.append(Architecture(name, kind, prefix + head, prefix + "Config", options, own))
    return made


LINEAR = dict(
    layer_types=["linear_attention", "full_attention"], linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
LM, MASKED, GENERATION = "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration"
PICTURES, SOUNDS = "ForImageClassification", "ForSequenceClassification"
ARCHITECTURES = [
    *of("causal", causal, GPT2, {
        "gpt2": ("GPT2", "LMHeadModel"), "gptj": ("GPTJ", LM, {"rotary_dim": 4}), "codegen": ("CodeGen", LM, {"rotary_dim": 4}),
        "gpt_bigcode": ("GPTBigCode", LM)}),
    *of("causal", causal, TEXT, {
        "llama": ("Llama", LM), "mistral": ("Mistral", LM), "qwen2": ("Qwen2", LM), "qwen3": ("Qwen3", LM, {"head_dim": 8}),
        "gemma": ("Gemma", LM, {"head_dim": 8}), "gemma2": ("Gemma2", LM, {"head_dim": 8}),
        "phi": ("Phi", LM), "phi3": ("Phi3", LM), "gpt_neox": ("GPTNeoX", LM),
        "stablelm": ("StableLm", LM), "olmo": ("Olmo", LM), "olmo2": ("Olmo2", LM), "cohere": ("Cohere", LM), "starcoder2": ("Starcoder2", LM),
        "granite": ("Granite", LM), "nemotron": ("Nemotron", LM), "glm": ("Glm", LM, {"head_dim": 8}), "smollm3": ("SmolLM3", LM),
        "biogpt": ("BioGpt", LM), "helium": ("Helium", LM, {"head_dim": 8}), "falcon": ("Falcon", LM), "persimmon": ("Persimmon", LM),
        "doge": ("Doge", LM)}),
    *of("causal", causal, {}, {
        "opt": ("OPT", LM, dict(vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
                                word_embed_proj_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
        "bloom": ("Bloom", LM, dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0)),
        "mpt": ("Mpt", LM, dict(vocab_size=64, d_model=32, n_layers=2, n_heads=4, max_seq_len=64)),
        "gpt_neo": ("GPTNeo", LM, dict(vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
                                       max_position_embeddings=64, window_size=8)),
        "xglm": ("XGLM", LM, dict(vocab_size=64, d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, max_position_embeddings=64, pad_token_id=0))}),
    Architecture("gemma3_text", "causal", "Gemma3ForCausalLM", "Gemma3TextConfig", {**TEXT, "head_dim": 8}, causal),
    *of("experts", causal, {**TEXT, **EXPERTS}, {
        "mixtral": ("Mixtral", LM), "qwen2_moe": ("Qwen2Moe", LM, {"shared_expert_intermediate_size": 16}), "qwen3_moe": ("Qwen3Moe", LM, {"head_dim": 8}),
        "olmoe": ("Olmoe", LM), "phimoe": ("Phimoe", LM), "granitemoe": ("GraniteMoe", LM), "gpt_oss": ("GptOss", LM, {"head_dim": 8}),
        "deepseek_v3": ("DeepseekV3", LM, dict(n_group=1, topk_group=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
                                               num_key_value_heads=4, first_k_dense_replace=1))}),
    *of("state space", causal, TEXT, {
        "mamba": ("Mamba", LM, {"state_size": 4}), "falcon_mamba": ("FalconMamba", LM, {"state_size": 4}),
        "mamba2": ("Mamba2", LM, dict(state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=8)),
        "recurrent_gemma": ("RecurrentGemma", LM, {"num_hidden_layers": 3, "lru_width": 32}),
        "qwen3_next": ("Qwen3Next", LM, {**EXPERTS, **LINEAR, "head_dim": 8, "shared_expert_intermediate_size": 16}),
        "olmo_hybrid": ("OlmoHybrid", LM, LINEAR)}),
    *of("masked", masked, TEXT, {
        "bert": ("Bert", MASKED), "roberta": ("Roberta", MASKED), "xlm_roberta": ("XLMRoberta", MASKED),
        "camembert": ("Camembert", MASKED), "albert": ("Albert", MASKED, {"embedding_size": 16}), "electra": ("Electra", MASKED, {"embedding_size": 16}),
        "deberta": ("Deberta", MASKED), "deberta_v2": ("DebertaV2", MASKED), "mpnet": ("MPNet", MASKED),
        "convbert": ("ConvBert", MASKED, {"embedding_size": 16}), "fnet": ("FNet", MASKED, {}, without(masked, "attention_mask")),
        "nystromformer": ("Nystromformer", MASKED, {"num_landmarks": 12, "segment_means_seq_len": 12, "conv_kernel_size": 5}),
        "squeezebert": ("SqueezeBert", MASKED, {"embedding_size": 32}),
        "longformer": ("Longformer", MASKED, {"attention_window": 4}), "big_bird": ("BigBird", MASKED),
        "big_bird_full": ("BigBird", MASKED, {"attention_type": "original_full"}), "modernbert": ("ModernBert", MASKED),
        "rembert": ("RemBert", MASKED, {"input_embedding_size": 16, "output_embedding_size": 16}), "roformer": ("RoFormer", MASKED, {"embedding_size": 32}),
        "ernie": ("Ernie", MASKED), "esm": ("Esm", MASKED, {"mask_token_id": 3})}),
    *of("masked", masked, {}, {
        "distilbert": ("DistilBert", MASKED, dict(vocab_size=64, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=64)),
        "xlnet": ("XLNet", SOUNDS, dict(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=48),
                  lambda: {**masked(), "labels": torch.tensor([0, 1])}),
        "funnel": ("Funnel", MASKED, dict(vocab_size=64, d_model=32, n_head=4, d_head=8, d_inner=48, block_sizes=[1, 1], num_decoder_layers=1))}),
    *of("seq2seq", seq2seq, T5, {
        "t5": ("T5", GENERATION), "mt5": ("MT5", GENERATION), "umt5": ("UMT5", GENERATION),
        "switch_transformers": ("SwitchTransformers", GENERATION, {
            "num_experts": 4, "num_decoder_layers": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}),
        "longt5": ("LongT5", GENERATION, {"local_radius": 4})}),
    *of("seq2seq", seq2seq, ENCODER_DECODER, {
        "bart": ("Bart", GENERATION), "mbart": ("MBart", GENERATION), "pegasus": ("Pegasus", GENERATION),
        "marian": ("Marian", "MTModel"), "blenderbot": ("Blenderbot", GENERATION), "m2m_100": ("M2M100", GENERATION),
        "led": ("LED", GENERATION, dict(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64)),
        "plbart": ("PLBart", GENERATION)}),
    *of("vision", image, VISION, {
        "vit": ("ViT", PICTURES), "deit": ("DeiT", PICTURES), "beit": ("Beit", PICTURES),
        "dinov2": ("Dinov2", PICTURES), "data2vec_vision": ("Data2VecVision", PICTURES), "ijepa": ("IJepa", PICTURES),
        "vit_msn": ("ViTMSN", PICTURES), "siglip_vision": ("Siglip", PICTURES, {"vision_config": dict(VISION)})}),
    *of("vision", image, dict(image_size=32, embed_dim=8, depths=[1, 1], num_heads=[2, 4], window_size=4, patch_size=4, num_labels=4), {
        "swin": ("Swin", PICTURES), "swinv2": ("Swinv2", PICTURES)}),
    *of("vision", image, STAGES, {
        "resnet": ("ResNet", PICTURES, dict(embedding_size=8)),
        "regnet": ("RegNet", PICTURES, dict(embedding_size=8, groups_width=8)),
        "convnext": ("ConvNext", PICTURES, dict(num_stages=2)), "convnextv2": ("ConvNextV2", PICTURES, dict(num_stages=2)),
        "bit": ("Bit", PICTURES, dict(embedding_size=8, num_groups=4)),
        "mobilenet_v2": ("MobileNetV2", PICTURES, dict(depth_multiplier=0.35, image_size=32)),
        "pvt": ("Pvt", PICTURES, dict(image_size=32, hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2, num_attention_heads=[1, 2],
                                                      sequence_reduction_ratios=[2, 1], patch_sizes=[4, 2], strides=[4, 2], mlp_ratios=[2, 2])),
        "segformer": ("Segformer", PICTURES, dict(num_encoder_blocks=2, hidden_sizes=[8, 16], depths=[1, 1], num_attention_heads=[1, 2],
                                                                  sr_ratios=[2, 1], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]))}),
    *of("speech", audio, AUDIO, {
        "wav2vec2": ("Wav2Vec2", SOUNDS), "hubert": ("Hubert", SOUNDS), "wavlm": ("WavLM", SOUNDS),
        "unispeech": ("UniSpeech", SOUNDS), "sew": ("SEW", SOUNDS, {"squeeze_factor": 1}),
        "wav2vec2_no_masking": ("Wav2Vec2", SOUNDS, {"apply_spec_augment": False, "layerdrop": 0.0}),
        "hubert_no_masking": ("Hubert", SOUNDS, {"apply_spec_augment": False, "layerdrop": 0.0}),
        "wavlm_no_masking": ("WavLM", SOUNDS, {"apply_spec_augment": False, "layerdrop": 0.0}),
        "wav2vec2_ctc": ("Wav2Vec2", "ForCTC", {}, lambda: {**audio(), "labels": tokens(length=5, high=32)})}),
    *of("speech", features, ENCODER_DECODER, {
        "whisper": ("Whisper", GENERATION, dict(num_mel_bins=16, max_source_positions=20, max_target_positions=20)),
        "speech_to_text": ("Speech2Text", GENERATION,
                           dict(input_feat_per_channel=16, max_source_positions=64, max_target_positions=64, conv_channels=16, num_conv_layers=2),
                           lambda: {"input_features": torch.randn(2, 40, 16), "labels": tokens(length=7)})}),
    Architecture("ast", "speech", "ASTForAudioClassification", "ASTConfig",
                 {**{k: v for k, v in VISION.items() if k != "image_size"}, "max_length": 32, "num_mel_bins": 16},
                 lambda: {"input_values": torch.randn(2, 32, 16), "labels": torch.tensor([0, 3])}),
    Architecture("clip", "multimodal", "CLIPModel", "CLIPConfig", {"projection_dim": 16}, pair,
                 {"text_config": {**TEXT, "projection_dim": 16}, "vision_config": {**VISION, "projection_dim": 16}}),
    Architecture("siglip", "multimodal", "SiglipModel", "SiglipConfig", {}, without(pair, "attention_mask"),
                 {"text_config": {**TEXT}, "vision_config": {**VISION}}),
    Architecture("chinese_clip", "multimodal", "ChineseCLIPModel", "ChineseCLIPConfig", {"projection_dim": 16}, pair,
                 {"text_config": {**TEXT}, "vision_config": {**VISION, "projection_dim": 16}}),
    Architecture("blip", "multimodal", "BlipForConditionalGeneration", "BlipConfig", {},
                 lambda: {**without(pair, "return_loss")(), "labels": tokens(length=8)},
                 {"text_config": {**TEXT, "encoder_hidden_size": 32}, "vision_config": {**VISION}}),
    Architecture("git", "multimodal", "GitForCausalLM", "GitConfig", {**TEXT},
                 lambda: {**causal(), "pixel_values": torch.randn(2, 3, 32, 32)}, {"vision_config": {**VISION}}),
    Architecture("vilt", "multimodal", "ViltForImageAndTextRetrieval", "ViltConfig", {**TEXT, **VISION}, without(pair, "return_loss")),
    Architecture("llava", "multimodal", "LlavaForConditionalGeneration", "LlavaConfig", {"image_token_id": 63}, lambda: llava(),
                 {"text_config": {**TEXT, "model_type": "llama"}, "vision_config": {**VISION, "model_type": "clip_vision_model"}}),
]


def noisy(**more: Any) -> dict[str, Any]:
    return {"sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 7]), **more}


def hidden(**more: Any) -> dict[str, Any]:
    return {"hidden_states": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 7]), **more}


UNET = dict(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64))
DIT = dict(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4)


def diffusion(name: str, model: str, options: dict[str, Any], batch: Callable[[], dict[str, Any]]) -> Architecture:
    return Architecture(name, "diffusion", model, "diffusers", options, batch)


ARCHITECTURES += [
    diffusion("unet_2d", "UNet2DModel", {
        **UNET, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, noisy),
    diffusion("unet_condition", "UNet2DConditionModel", {
        **UNET, "cross_attention_dim": 32, "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}, lambda: noisy(encoder_hidden_states=torch.randn(2, 5, 32))),
    diffusion("autoencoder_kl", "AutoencoderKL", dict(
        in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(32, 64), latent_channels=4), lambda: {"sample": torch.randn(2, 3, 32, 32)}),
    diffusion("vq_model", "VQModel", dict(
        in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(32, 64), latent_channels=3, num_vq_embeddings=16), lambda: {"sample": torch.randn(2, 3, 32, 32)}),
    diffusion("dit", "DiTTransformer2DModel", DIT, lambda: hidden(class_labels=torch.tensor([1, 2]))),
    diffusion("pixart", "PixArtTransformer2DModel", {**DIT, "cross_attention_dim": 32, "caption_channels": 32}, lambda: hidden(
        encoder_hidden_states=torch.randn(2, 5, 32), added_cond_kwargs={"resolution": None, "aspect_ratio": None})),
    diffusion("sd3", "SD3Transformer2DModel", {
        **DIT, "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 64, "pos_embed_max_size": 16}, lambda: hidden(
        encoder_hidden_states=torch.randn(2, 5, 32), pooled_projections=torch.randn(2, 64))),
    diffusion("flux", "FluxTransformer2DModel", dict(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
        pooled_projection_dim=32, axes_dims_rope=(4, 4, 8)), lambda: dict(
        hidden_states=torch.randn(2, 16, 4), encoder_hidden_states=torch.randn(2, 5, 32), pooled_projections=torch.randn(2, 32), timestep=torch.rand(2),
        img_ids=torch.randn(16, 3), txt_ids=torch.randn(5, 3))),
    Architecture("llama_lora", "lora", "llama", "peft", dict(r=4, target_modules="all-linear", lora_dropout=0.1), causal),
    Architecture("t5_lora", "lora", "t5", "peft", dict(r=4, target_modules=["q", "v"]), seq2seq),
    Architecture("llama_dora", "lora", "llama", "peft", dict(r=4, target_modules="all-linear", use_dora=True), causal),
]


def llava() -> dict[str, Any]:
    ids = tokens(length=24, high=60)
    ids[:, 2:18] = 63  # an image of 4 x 4 patches
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": torch.randn(2, 3, 32, 32), "labels": ids}


def loss_of(returned: Any) -> torch.Tensor:
    found = getattr(returned, "loss", None)
    if found is not None:
        return found
    return next(v for v in returned.values() if isinstance(v, torch.Tensor) and v.is_floating_point()).float().square().mean()


def seed_everything(seed: int) -> None:
    """Also the generators of NumPy and Python: some models draw masks from them."""
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def train(model: torch.nn.Module, batches: list[dict[str, Any]], seed: int) -> list[dict[str, torch.Tensor]]:
    """Loss, gradients, buffers and generator of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seed_everything(seed)
    found = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model(**batch))
        loss.backward()
        state = {"loss": loss.detach().clone(), "generator": torch.get_rng_state(), **foreign_generators()}
        state |= {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        state |= {f"buffer {n}": b.clone() for n, b in model.named_buffers()}
        optimizer.step()
        found.append(state)
    return found


def foreign_generators() -> dict[str, torch.Tensor]:
    """States of NumPy's and Python's."""
    numbers = numpy.random.get_state(legacy=False)["state"]
    return {"generator of numpy": torch.tensor([*numbers["key"].tolist(), numbers["pos"]]), "generator of Python": torch.tensor(random.getstate()[1])}


def difference(ours: list[dict[str, torch.Tensor]], theirs: list[dict[str, torch.Tensor]]) -> str:
    for step, (mine, other) in enumerate(zip(ours, theirs)):
        if mine.keys() != other.keys():
            return f"step {step}: {sorted(mine.keys() ^ other.keys())[0]} on one side only"
        for name in other:
            a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (mine[name], other[name]))
            if not torch.equal(a, b):
                return f"step {step}: {name} differs"
    return "yes"


# Operators that compute nothing, and those by which tracing and autograd's bookkeeping differ.
NO_WORK = {"detach", "alias", "lift_fresh", "_local_scalar_dense", "is_same_size", "_to_copy", "is_pinned", "_has_compatible_shallow_copy_type"}


class Operators(TorchDispatchMode):
    """Writes down what eager runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def same_operators(model: torch.nn.Module, batch: dict[str, Any]) -> str:
    """Is what was traced, forward and backward, eager's sequence of operators, views apart (autograd makes views again after
    writes)? In place or not makes no difference: autograd adds gradients up in place where it sees no other owner, which it does
    not try with traced tensors.
    """
    twin = copy.deepcopy(model)
    with Operators() as eager:
        returned = twin(**batch)
        made = getattr(returned, "loss", None)
        if made is None:  # what the model returns is what is traced
            made = next(v for v in returned.values() if isinstance(v, torch.Tensor) and v.is_floating_point())
    one = torch.ones_like(made)
    with eager:
        torch.autograd.grad(made, [p for p in twin.parameters() if p.requires_grad], one, allow_unused=True)
    dispatched, traced = Tracer.dispatched, []

    def noted(self: Tracer, func: Any, args: Any, kwargs: Any) -> Any:
        if not func.is_view:
            traced.append(func._schema.name)
        return dispatched(self, func, args, kwargs)

    Tracer.dispatched = noted
    try:
        capture(copy.deepcopy(model), (), batch)
    finally:
        Tracer.dispatched = dispatched
    names = [[n.split("::")[1].rstrip("_") for n in found if n.split("::")[1] not in NO_WORK] for found in (eager.names, traced)]
    if names[0] == names[1]:
        return "yes"
    if os.environ.get("COVERAGE_PRINT"):
        print(*(f"{a:40} {b}" for a, b in itertools.zip_longest(*names, fillvalue="")), sep="\n")
    place = next((i for i, (a, b) in enumerate(zip(*names)) if a != b), min(map(len, names)))
    return f"at {place} of {len(names[0])}: {names[0][place:place + 1]} eager, {names[1][place:place + 1]} traced"


@dataclasses.dataclass
class Row:
    name: str
    kind: str
    operators: str = "-"
    nodes: str = "-"
    decisions: str = "-"
    seconds: str = "-"
    islands: str = "-"
    equal: list[str] = dataclasses.field(default_factory=list)
    message: str = ""


def short_name(island: str) -> str:
    """Without numbers of layers."""
    return ".".join(part for part in island.split(".") if not part.isdigit())


def examine(case: Architecture, fractions: list[float], capture_only: bool, operators: bool) -> Row:
    row = Row(case.name, case.kind)
    try:
        torch.manual_seed(0)
        model = case.build()
        batches = [case.batch() for _ in range(STEPS)]
        theirs = train(copy.deepcopy(model), batches, seed=1)
    except Exception as error:
        row.message = f"PLAIN {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
        return row
    try:
        begin = time.perf_counter()
        captured = capture(copy.deepcopy(model), (), batches[0])
        row.seconds = f"{time.perf_counter() - begin:.2f}"
        row.nodes = str(len(captured.program["nodes"]))
        row.operators = same_operators(model, batches[0]) if operators else "-"
        row.islands = ", ".join(dict.fromkeys(short_name(call.name) for call in captured.islands)) or "-"
        row.decisions = str(len(captured.conditions.decisions)) if captured.conditions else "0"
        if capture_only:
            return row
        fit = regen.will_it_fit(copy.deepcopy(model), (), 1 << 40, kwargs=batches[0], reserve=RESERVE, work_limit=WORK)
        least = fit.least_budget or fit.unplanned
        for fraction in fractions:
            torch.manual_seed(1)
            budget = int(least + fraction * max(0, fit.unplanned - least))
            wrapped = regen.wrap(copy.deepcopy(model), (), budget, kwargs=batches[0], reserve=RESERVE, work_limit=WORK, improve=False)
            row.equal.append(difference(train(wrapped, batches, seed=1), theirs))
            del wrapped
    except Exception as error:
        row.message = f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
    return row


def append(path: pathlib.Path, case: Architecture, row: Row) -> None:
    """Adds the row to the file, with where it comes from; a file that is not there gets a head."""
    columns = [*COLUMNS, *results_measure.data.PROVENANCE]
    captured = "yes" if row.nodes != "-" else row.message or "no"
    equal = [*row.equal, *[row.message] * (len(MEASURED) - len(row.equal))]
    islands = "" if row.islands == "-" else row.islands.replace(", ", "; ")
    cells = [case.name, case.library, importlib.metadata.version(case.library), case.kind, captured, islands, row.nodes, row.seconds, *equal]
    command = f"experiments/coverage.py --only {case.name} --csv results/coverage.csv"
    found = dict(zip(COLUMNS, cells, strict=True)) | results_measure.provenance(command)
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--fractions", default="1.0,0.7")
    parser.add_argument("--capture-only", action="store_true")
    parser.add_argument("--operators", action="store_true", help="compare the sequence of operators with eager's too")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="add the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    fractions = [float(f) for f in options.fractions.split(",")]
    if options.csv and (options.capture_only or fractions != MEASURED):
        parser.error(f"--csv has columns for --fractions {','.join(map(str, MEASURED))}, and needs training: leave out --capture-only and --fractions")
    chosen = [a for a in ARCHITECTURES if (not options.only or a.name in options.only.split(",")) and (not options.kind or a.kind == options.kind)]
    print(f"| name | kind | operators as eager | nodes | decisions | s | islands | {' | '.join(f'equal at {f}' for f in fractions)} | message |")
    whole = 0
    for case in chosen:
        row = examine(case, fractions, options.capture_only, options.operators)
        whole += len(row.equal) == len(fractions) and all(e == "yes" for e in row.equal)
        equal = row.equal + ["-"] * (len(fractions) - len(row.equal))
        cells = [row.name, row.kind, row.operators, row.nodes, row.decisions, row.seconds, row.islands, *equal, row.message]
        print("| " + " | ".join(cells) + " |", flush=True)
        if options.csv:
            append(options.csv, case, row)
    print(f"{whole} of {len(chosen)} are bitwise equal at all budgets")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
