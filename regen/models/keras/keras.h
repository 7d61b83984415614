// The builders behind the table of keras.applications networks, one source for each family.
#pragma once

#include "regen/models/layers/layers.h"

namespace regen {

LayerGraph build_vgg(int layers);            // 16, 19
LayerGraph build_resnet(int layers);         // 50, 101, 152
LayerGraph build_resnet_v2(int layers);      // 50, 101, 152
LayerGraph build_mobilenet(int version);     // 1, 2
LayerGraph build_densenet(int layers);       // 121, 169, 201
LayerGraph build_inception_v3(int variant);  // the variant has no meaning
LayerGraph build_xception(int variant);      // the variant has no meaning
LayerGraph build_nasnet(int variant);        // 0 mobile, 1 large

}  // namespace regen
