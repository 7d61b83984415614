#include "regen/models/modern/modern_models.h"

#include <array>

#include "regen/models/zoo.h"

namespace regen {

std::span<const ZooEntry> modern_models() {
  static constexpr std::array<ZooEntry, 14> kEntries = {{
      {"vit_b_16", "modern", "224x224x3", build_vit},
      {"swin_t", "modern", "224x224x3", build_swin},
      {"convnext_t", "modern", "224x224x3", build_convnext},
      {"efficientnet_b0", "modern", "224x224x3", build_efficientnet},
      {"bert_base", "modern", "512 tokens", build_bert, 0},
      {"bert_large", "modern", "512 tokens", build_bert, 1},
      {"gpt2", "modern", "1024 tokens", build_gpt2, 0},
      {"gpt2_small", "modern", "1024 tokens", build_gpt2, 0},
      {"gpt2_medium", "modern", "1024 tokens", build_gpt2, 1},
      {"gpt2_large", "modern", "1024 tokens", build_gpt2, 2},
      {"gpt2_xl", "modern", "1024 tokens", build_gpt2, 3},
      {"llama", "modern", "2048 tokens", build_llama},
      {"llama_1b", "modern", "2048 tokens", build_llama},
      {"diffusion_unet", "modern", "64x64x4, 320, 77x768", build_diffusion_unet},
  }};
  return kEntries;
}

}  // namespace regen
