// The parts of the keras_segmentation networks: encoders with five taps, and heads.
#pragma once

#include <array>

#include "regen/models/layers/layers.h"

namespace regen {

inline constexpr std::int64_t kSegmentationClasses = 19;  // as Cityscapes evaluates

enum class Encoder : int { kVanilla, kVgg, kResnet50, kMobilenet };

// The feature maps f1 to f5 after each halving of the image.
using Taps = std::array<LayerId, 5>;

// Adds the input and the encoder. Layers that no head reads later are not part of the network.
Taps add_encoder(LayerGraph& net, Encoder encoder, Size2 image);

// "vgg_" or "_vgg" in names; empty for kVanilla.
const char* encoder_name(Encoder encoder);

// Class scores as rows of pixels, softmax, output.
void add_segmentation_output(LayerGraph& net, LayerId scores);

// `variant` is an Encoder, for the pyramids of 50 and 101 layers that number.
LayerGraph build_fcn_8(int variant);
LayerGraph build_fcn_32(int variant);
LayerGraph build_unet(int variant);
LayerGraph build_unet_mini(int variant);  // the variant has no meaning
LayerGraph build_segnet(int variant);
LayerGraph build_pspnet(int variant);
LayerGraph build_deep_pspnet(int layers);

}  // namespace regen
