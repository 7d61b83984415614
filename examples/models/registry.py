"""Names, sizes and inputs of the models, by family."""

import torch
from torch.nn import functional as F

from . import autoencoders, branches, depthwise, experts, graphs, inception, nasnet, plain, recurrent, residual, transformers, unet, views


def pictures(batch, height, width=None, classes=10, channels_last=False):
    x = torch.randn(batch, 3, height, width or height)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    return x, torch.randint(classes, (batch,))


def token_loss(logits, target):
    """Cross entropy for the next token, over all places."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def text(batch, length, vocabulary):
    tokens = torch.randint(1, vocabulary, (batch, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


# What `tiny` is for a model that is still small, but has enough layers that a plan can save half of the memory.
DEEP = "deep"


def pick(tiny, small, deep, full):
    return (deep if tiny == DEEP else small) if tiny else full


# Plain chains.

def mlp(tiny, batch):
    widths = pick(tiny, [16, 32, 32, 10], [16, *[32] * 12, 10], [1024, 8192, 8192, 8192, 1000])
    batch = batch or (8 if tiny else 4096)
    return plain.Mlp(widths), (torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))), F.cross_entropy


def cnn(tiny, batch):
    model = plain.PlainCnn(*pick(tiny, (4, 10), (16, 10, 4), (64, 1000)))
    return model, picture_args(tiny, batch, 256, 16), F.cross_entropy


def picture_args(tiny, batch, full_batch, tiny_size=32, channels_last=False):
    """Tiny pictures of ten classes, or ImageNet's size and classes."""
    if tiny:
        return pictures(batch or 2, tiny_size, channels_last=channels_last)
    return pictures(batch or full_batch, 224, classes=1000, channels_last=channels_last)


def vgg16(tiny, batch):
    # Libraries pad channels to 16: in a narrower network workspace is all that counts.
    model = plain.Vgg16(pick(tiny, 2, 16, 64), 16, 10, pooled=1) if tiny else plain.Vgg16()
    return model, picture_args(tiny, batch, 176), F.cross_entropy


def vgg19(tiny, batch):
    model = plain.Vgg16(2, 16, 10, 1, plain.VGG19) if tiny else plain.Vgg16(layers=plain.VGG19)
    return model, picture_args(tiny, batch, 160), F.cross_entropy


# Residual networks.

def resnet18(tiny, batch):
    sizes = pick(tiny, ((1, 1), 4, 10), ((7, 2), 16, 10), ((2, 2, 2, 2),))
    model = residual.ResNet(residual.BasicBlock, *sizes)
    return model, picture_args(tiny, batch, 512), F.cross_entropy


def resnet50(tiny, batch, channels_last=False):
    block = residual.Bottleneck
    model = residual.ResNet(block, *pick(tiny, ((2, 1), 4), ((4, 2), 4), None), 10) if tiny else residual.ResNet(block, (3, 4, 6, 3))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model, picture_args(tiny, batch, 184, channels_last=channels_last), F.cross_entropy


def resnet50_channels_last(tiny, batch):
    return resnet50(tiny, batch, channels_last=True)


def resnet18_frozen(tiny, batch):
    """Fine-tuning: the first layers do not train."""
    model, args, loss_fn = resnet18(tiny, batch)
    model.stem.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model, args, loss_fn


def stochastic_depth(tiny, batch):
    model = residual.StochasticDepthNet(*pick(tiny, (4, 2, 10), (16, 6, 10), (128, 16, 1000)))
    return model, picture_args(tiny, batch, 128, 16), F.cross_entropy


# Depthwise convolutions.

def mobilenet_v2(tiny, batch):
    stages = [(1, 16, 1, 1), (6, 24, 1, 2), (6, 24, pick(tiny, 1, 5, 0), 1)]
    model = depthwise.MobileNetV2(0.25, 10, stages) if tiny else depthwise.MobileNetV2()
    return model, picture_args(tiny, batch, 272), F.cross_entropy


def depthwise_se(tiny, batch):
    model = depthwise.DepthwiseSeNet(*pick(tiny, (4, 2, 10), (16, 4, 10), (192, 12, 1000)))
    return model, picture_args(tiny, batch, 128, 16), F.cross_entropy


# Branches.

def googlenet(tiny, batch):
    blocks = pick(tiny, branches.GOOGLENET[1:4], [b for b in branches.GOOGLENET if b != "M"][:6], None)
    model = branches.GoogLeNet(pick(tiny, 4, 8, 64), 10, blocks) if tiny else branches.GoogLeNet()
    return model, picture_args(tiny, batch, 320), F.cross_entropy


def densenet(tiny, batch):
    model = branches.DenseNet(*pick(tiny, (4, (2, 1)), (8, (3, 3)), None), 10) if tiny else branches.DenseNet()
    return model, picture_args(tiny, batch, 160), F.cross_entropy


def densenet169(tiny, batch):
    model = branches.DenseNet(4, (2, 2), 10) if tiny else branches.DenseNet(32, (6, 12, 32, 32))
    return model, picture_args(tiny, batch, 128), F.cross_entropy


def sized_pictures(tiny, batch, full_batch, tiny_side, side):
    """For networks whose pictures are not of 224 x 224."""
    return pictures(batch or 2, tiny_side) if tiny else pictures(batch or full_batch, side, classes=1000)


def inception_v3(tiny, batch):
    model = inception.InceptionV3(0.05, 10) if tiny else inception.InceptionV3()
    return model, sized_pictures(tiny, batch, 128, 75, 299), F.cross_entropy


def inception_resnet_v2(tiny, batch):
    model = inception.InceptionResNetV2(0.05, 10, (1, 1, 1)) if tiny else inception.InceptionResNetV2()
    return model, sized_pictures(tiny, batch, 64, 75, 299), F.cross_entropy


def nasnet_mobile(tiny, batch):
    model = nasnet.NasNet(4, 4, 1, 10) if tiny else nasnet.NasNet()
    return model, sized_pictures(tiny, batch, 128, 33, 224), F.cross_entropy


def nasnet_large(tiny, batch):
    model = nasnet.NasNet(4, 8, 1, 10, skips=True) if tiny else nasnet.NasNet(96, 168, 6, skips=True)
    return model, sized_pictures(tiny, batch, 32, 33, 331), F.cross_entropy


# Segmentation.

def segmentation(tiny, batch, interpolate):
    if tiny:
        model, sizes = unet.UNet(pick(tiny, 4, 16, 64), pick(tiny, 1, 2, 4) if interpolate else 2, 3, interpolate), (batch or 2, 16, 24)
    else:
        model, sizes = unet.UNet(64, 4, 2, interpolate), (batch or 11, 416, 608)
    x, _ = pictures(*sizes)
    classes = model.last.out_channels
    return model, (x, torch.randint(classes, sizes)), F.cross_entropy


def unet_transposed(tiny, batch):
    return segmentation(tiny, batch, False)


def unet_bilinear(tiny, batch):
    return segmentation(tiny, batch, True)


# Transformers.

def vit(tiny, batch):
    model = transformers.VisionTransformer(16, 4, 16, 2, 2, 10) if tiny else transformers.VisionTransformer()
    return model, picture_args(tiny, batch, 128, 16), F.cross_entropy


def mixer(tiny, batch):
    model = transformers.Mixer(16, 4, 16, 2, 10) if tiny else transformers.Mixer(224, 16, 768, 12, 1000)
    return model, picture_args(tiny, batch, 128, 16), F.cross_entropy


def gpt(tiny, batch, full_batch=16, **sizes):
    if tiny:
        sizes |= dict(vocabulary=pick(tiny, 64, 32, 0), context=16, width=16, depth=pick(tiny, 2, 4, 0), heads=2)
    model = transformers.Gpt(**sizes)
    length = model.positions.num_embeddings
    return model, text(batch or (2 if tiny else full_batch), length, model.tokens.num_embeddings), token_loss


def gpt2_medium(tiny, batch):
    """bfloat16 when full: parameters and all."""
    model, args, loss_fn = gpt(tiny, batch)
    return (model if tiny else model.bfloat16()), args, loss_fn


def gpt2_dropout(tiny, batch):
    return gpt(tiny, batch, dropout=0.1)


def gpt2_autocast(tiny, batch):
    return gpt(tiny, batch, autocast=True)


def llama(tiny, batch):
    sizes = pick(tiny, (64, 16, 16, 2, 4, 2), (32, 16, 16, 4, 4, 2), (32000, 2048, 2048, 16, 32, 8))
    model = transformers.Llama(*sizes)
    return model, text(batch or (2 if tiny else 8), sizes[1], sizes[0]), token_loss


# Encoders with dropout.

def bert(tiny, batch):
    vocabulary = pick(tiny, 64, 32, 30522)
    model = transformers.Bert(vocabulary, 16, 16, pick(tiny, 1, 3, 12), 2) if tiny else transformers.Bert()
    tokens, target = text(batch or (2 if tiny else 64), 16 if tiny else 512, vocabulary)
    tokens[-1, -3:] = 0  # padding

    def loss_fn(outputs, target):
        return token_loss(outputs["tokens"], target) + F.cross_entropy(outputs["text"], target[:, 0] % 2)

    return model, (tokens, target), loss_fn


def bert_evaluated(tiny, batch):
    """The encoder as it is fine-tuned with dropout off."""
    model, args, loss_fn = bert(tiny, batch)
    return model.eval(), args, loss_fn


# Recurrent networks.

def lstm(tiny, batch, bidirectional=False, dropout=0.0):
    sizes = (32, 8, 8, pick(tiny, 2, 4, 2), 4) if tiny else (32000, 1024, 2048, 2, 10)
    model = recurrent.LstmClassifier(*sizes, bidirectional, dropout)
    batch = batch or (2 if tiny else 64)
    return model, (torch.randint(sizes[0], (batch, pick(tiny, 6, 8, 512))), torch.randint(sizes[-1], (batch,))), F.cross_entropy


def lstm_bidirectional(tiny, batch):
    return lstm(tiny, batch, bidirectional=True, dropout=0.2)


def gru(tiny, batch):
    sizes = (32, 8, 8, 4) if tiny else (32000, 1024, 2048, 64)
    model = recurrent.GruTagger(*sizes)
    shape = (batch or (2 if tiny else 64), pick(tiny, 5, 8, 256))
    return model, (torch.randint(sizes[0], shape), torch.randint(sizes[-1], shape)), token_loss


def lstm_cell_loop(tiny, batch):
    sizes = (6, 8, 4) if tiny else (512, 1024, 10)
    batch = batch or (3 if tiny else 256)
    return recurrent.CellLoop(*sizes), (torch.randn(batch, pick(tiny, 4, 8, 64), sizes[0]), torch.randint(sizes[-1], (batch,))), F.cross_entropy


def nmt(tiny, batch):
    """Translation as in TensorFlow's tutorial: two layers of 512, 32,000 pieces of words."""
    vocabulary, width, layers, length = (16, 8, 2, 3) if tiny else (32000, 512, 2, 32)
    shape = (batch or (2 if tiny else 64), length)
    model = recurrent.Translator(vocabulary, width, layers, length)
    return model, (torch.randint(vocabulary, shape), torch.randint(vocabulary, shape)), token_loss


# Mixtures of experts.

def moe(tiny, batch):
    sizes = pick(tiny, (32, 16, 2, 4, 2, 6), (16, 16, 5, 4, 2, 96), (32000, 1024, 8, 16, 2, 2048))
    model = experts.MixtureOfExperts(*sizes)

    def loss_fn(outputs, target):
        return token_loss(outputs[0], target) + 0.01 * outputs[1]

    return model, text(batch or (2 if tiny else 16), 8 if tiny else 1024, sizes[0]), loss_fn


def moe_noisy(tiny, batch):
    sizes = (16, 4, 2, 10) if tiny else (2048, 16, 2, 1000)
    batch = batch or (6 if tiny else 4096)
    more = [experts.NoisyExperts(*sizes[:3], sizes[0]) for _ in range(pick(tiny, 0, 3, 0))]
    model = torch.nn.Sequential(*more, experts.NoisyExperts(*sizes)) if more else experts.NoisyExperts(*sizes)
    return model, (torch.randn(batch, sizes[0]), torch.randint(sizes[-1], (batch,))), F.cross_entropy


# Graphs.

def random_graph(nodes, edges, width, classes):
    return torch.randn(nodes, width), torch.randint(nodes, (2, edges)), torch.randint(classes, (nodes,))


def gcn(tiny, batch):
    sizes = pick(tiny, (8, 16, 2, 4), (8, 16, 16, 4), (512, 512, 4, 40))
    return graphs.GraphConvolution(*sizes), random_graph(*graph_size(tiny, batch), sizes[0], sizes[-1]), F.cross_entropy


def gat(tiny, batch):
    sizes = (8, 4, 2, 4) if tiny else (512, 64, 8, 40)
    model = graphs.GraphAttentions(*sizes[:3], 4, sizes[3]) if tiny == DEEP else graphs.GraphAttention(*sizes)
    return model, random_graph(*graph_size(tiny, batch), sizes[0], sizes[-1]), F.cross_entropy


def graph_size(tiny, batch):
    nodes = batch or (10 if tiny else 200_000)
    return nodes, 4 * nodes


def pooled_graphs(tiny, batch):
    width, hidden, depth, count, classes = pick(tiny, (6, 8, 2, 3, 4), (6, 16, 5, 40, 4), (64, 512, 6, 1024, 10))
    model = graphs.PooledGraphs(width, hidden, depth, count, classes)
    x, edges, _ = random_graph(count * 5, count * 20, width, classes)
    lengths, membership = torch.rand(count * 20, 1), torch.arange(count).repeat_interleave(5)
    return model, (x, edges, lengths, membership, torch.randint(classes, (count,))), F.cross_entropy


# Autoencoders.

def vae(tiny, batch):
    sizes = pick(tiny, (16, 12, 3), (16, 32, 3, 5), (4096, 8192, 256))
    picture = torch.rand(batch or (4 if tiny else 4096), sizes[0])
    return autoencoders.VariationalAutoencoder(*sizes), (picture, picture.clone()), autoencoders.vae_loss


def denoising_autoencoder(tiny, batch):
    picture = torch.rand(batch or (2 if tiny else 128), 3, *((16, 16) if tiny else (224, 224)))
    return autoencoders.DenoisingAutoencoder(*pick(tiny, (4,), (16, 6), (128,))), (picture, picture.clone()), autoencoders.denoising_loss


# Views and changes in place.

def view_heavy(tiny, batch):
    return flat_classifier(repeated(views.ViewHeavy, tiny, 5), tiny, batch)


def in_place(tiny, batch):
    return flat_classifier(repeated(views.InPlace, tiny, 5), tiny, batch)


def repeated(kind, tiny, count):
    """Several of them, one after another, where a deep model is asked for."""
    if tiny != DEEP:
        return kind
    return lambda width, classes: torch.nn.Sequential(*(kind(width, width) for _ in range(count - 1)), kind(width, classes))


def flat_classifier(kind, tiny, batch, *extra):
    width, classes = (16, 5) if tiny else (4096, 1000)
    batch = batch or (4 if tiny else 4096)
    return kind(width, *extra, classes), (torch.randn(batch, width), torch.randint(classes, (batch,))), F.cross_entropy


def following_buffers(tiny, batch):
    model, args, _ = flat_classifier(views.FollowingBuffers, tiny, batch, pick(tiny, 0, 12, 0))

    def loss_fn(outputs, target):
        return F.cross_entropy(outputs[0], target) + outputs[1].square().mean()

    return model, args, loss_fn


def shared_blocks(tiny, batch):
    return flat_classifier(views.SharedBlocks, tiny, batch, pick(tiny, 2, 5, 2))


FAMILIES = {
    "plain": {"mlp": mlp, "cnn": cnn, "vgg16": vgg16},
    "residual": {
        "resnet18": resnet18, "resnet50": resnet50, "resnet50_channels_last": resnet50_channels_last,
        "resnet18_frozen": resnet18_frozen, "stochastic_depth": stochastic_depth},
    "depthwise": {"mobilenet_v2": mobilenet_v2, "depthwise_se": depthwise_se},
    "inception": {"googlenet": googlenet},
    "dense": {"densenet": densenet},
    "unet": {"unet": unet_transposed, "unet_bilinear": unet_bilinear},
    "vision transformer": {"vit": vit, "mixer": mixer},
    "language model": {"gpt2_medium": gpt2_medium, "gpt2_dropout": gpt2_dropout, "gpt2_autocast": gpt2_autocast, "llama": llama},
    "encoder": {"bert": bert, "bert_evaluated": bert_evaluated},
    "recurrent": {"lstm": lstm, "lstm_bidirectional": lstm_bidirectional, "gru": gru, "lstm_cell_loop": lstm_cell_loop},
    "mixture of experts": {"moe": moe, "moe_noisy": moe_noisy},
    "graph network": {"gcn": gcn, "gat": gat, "pooled_graphs": pooled_graphs},
    "autoencoder": {"vae": vae, "denoising_autoencoder": denoising_autoencoder},
    "views and in place": {
        "view_heavy": view_heavy, "in_place": in_place, "following_buffers": following_buffers, "shared_blocks": shared_blocks},
}

# Networks that experiments compare with published ones, too alike to others for the tests that take every model.
RELATIVES = {
    "vgg19": vgg19, "densenet121": densenet, "densenet169": densenet169, "inception_v3": inception_v3,
    "inception_resnet_v2": inception_resnet_v2, "nasnet_mobile": nasnet_mobile, "nasnet_large": nasnet_large, "nmt": nmt}
