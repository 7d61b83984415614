"""The models of examples/models at sizes where plans have something to save."""

from examples.models import build

# Large enough that activations outweigh parameters.
BATCHES = {
    "mlp": 512, "cnn": 128, "vgg16": 64, "resnet18": 48, "resnet50": 16, "resnet50_channels_last": 16, "resnet18_frozen": 48,
    "stochastic_depth": 16, "mobilenet_v2": 4, "depthwise_se": 16, "googlenet": 16, "densenet": 16, "unet": 24, "unet_bilinear": 24,
    "vit": 16, "mixer": 16, "gpt2_medium": 16, "gpt2_dropout": 32, "gpt2_autocast": 16, "llama": 16, "bert": 32, "bert_evaluated": 16,
    "lstm": 32, "lstm_bidirectional": 32, "gru": 128, "lstm_cell_loop": 256, "moe": 32, "moe_noisy": 256, "gcn": 400, "gat": 400,
    "vae": 512, "denoising_autoencoder": 16, "view_heavy": 512, "in_place": 512, "following_buffers": 512, "shared_blocks": 512,
}


def build_deep(name):
    return build(name, "deep", BATCHES.get(name))
