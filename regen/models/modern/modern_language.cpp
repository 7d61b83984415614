// Language models: GPT-2 (Radford et al., 2019), BERT (Devlin et al., 2018) and a Llama
// (Touvron et al., 2023), shaped as in Hugging Face's transformers.
#include <array>

#include "regen/models/modern/modern_models.h"

namespace regen {
namespace {

constexpr int kTokenBytes = 8;

struct Gpt2Config {
  const char* name;
  std::size_t layers;
  std::int64_t features;
  std::int64_t heads;
};

constexpr std::array<Gpt2Config, 4> kGpt2 = {{
    {"gpt2_small", 12, 768, 12},
    {"gpt2_medium", 24, 1024, 16},
    {"gpt2_large", 36, 1280, 20},
    {"gpt2_xl", 48, 1600, 25},
}};

LayerId gpt2_block(LayerGraph& net, LayerId x, std::int64_t heads) {
  LayerId h = net.layer_norm(x, {.name = "ln_1"});
  h = packed_attention(net, h, {.heads = heads, .causal = true});
  x = net.add({x, net.dropout(h, "attn_dropout")}, "attn_add");
  h = mlp(net, net.layer_norm(x, {.name = "ln_2"}), 4 * net.channels(x));
  return net.add({x, net.dropout(h, "mlp_dropout")}, "mlp_add");
}

struct BertConfig {
  const char* name;
  std::size_t layers;
  std::int64_t features;
  std::int64_t heads;
};

constexpr std::array<BertConfig, 2> kBert = {{
    {"bert_base", 12, 768, 12},
    {"bert_large", 24, 1024, 16},
}};

// The norm comes after the sum, unlike in the later networks.
LayerId bert_block(LayerGraph& net, LayerId x, std::int64_t heads) {
  const std::int64_t features = net.channels(x);
  const LayerId query = net.dense(x, features, {.name = "query"});
  const LayerId key = net.dense(x, features, {.name = "key"});
  const LayerId value = net.dense(x, features, {.name = "value"});
  LayerId h = net.attention(query, key, value, {.heads = heads, .name = "attn"});
  h = net.dropout(net.dense(h, features, {.name = "attn_proj"}), "attn_dropout");
  x = net.layer_norm(net.add({x, h}, "attn_add"), {.name = "attn_ln"});
  h = net.dropout(mlp(net, x, 4 * features), "mlp_dropout");
  return net.layer_norm(net.add({x, h}, "mlp_add"), {.name = "mlp_ln"});
}

// TinyLlama-1.1B (Zhang et al., 2024).
struct LlamaConfig {
  std::size_t layers = 22;
  std::int64_t features = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 4;
  std::int64_t hidden = 5632;
  std::int64_t vocabulary = 32000;
  std::int64_t tokens = 2048;
};

LayerId llama_attention(LayerGraph& net, LayerId x, const LlamaConfig& config) {
  const std::int64_t kv_features = config.features / config.heads * config.kv_heads;
  const LayerId query = net.dense(x, config.features, {.bias = false, .name = "q_proj"});
  const LayerId key = net.dense(x, kv_features, {.bias = false, .name = "k_proj"});
  const LayerId value = net.dense(x, kv_features, {.bias = false, .name = "v_proj"});
  const LayerId h = net.attention(
      net.rotary(query, "q_rotary"), net.rotary(key, "k_rotary"), value,
      {.heads = config.heads, .kv_heads = config.kv_heads, .causal = true, .name = "attn"});
  return net.dense(h, config.features, {.bias = false, .name = "o_proj"});
}

// SwiGLU: one linear layer decides how much of another one passes.
LayerId llama_mlp(LayerGraph& net, LayerId x, const LlamaConfig& config) {
  LayerId gate = net.dense(x, config.hidden, {.bias = false, .name = "gate_proj"});
  gate = net.activation(gate, Activation::kSwish, "gate_silu");
  const LayerId up = net.dense(x, config.hidden, {.bias = false, .name = "up_proj"});
  return net.dense(net.multiply({gate, up}, "gate_mul"), config.features,
                   {.bias = false, .name = "down_proj"});
}

LayerId llama_block(LayerGraph& net, LayerId x, const LlamaConfig& config) {
  LayerId h = llama_attention(net, net.rms_norm(x, "attn_norm"), config);
  x = net.add({x, h}, "attn_add");
  h = llama_mlp(net, net.rms_norm(x, "mlp_norm"), config);
  return net.add({x, h}, "mlp_add");
}

}  // namespace

LayerGraph build_gpt2(int size) {
  constexpr std::int64_t kTokens = 1024;
  constexpr std::int64_t kVocabulary = 50257;
  const Gpt2Config& config = kGpt2[static_cast<std::size_t>(size)];
  LayerGraph net(config.name);
  const LayerId tokens = net.input({kTokens}, {.element_bytes = kTokenBytes, .name = "tokens"});
  const LayerId table = net.embedding(tokens, kVocabulary, config.features, "wte");
  LayerId x = net.add_parameter(table, {kTokens, config.features}, "wpe");
  x = net.dropout(x, "dropout");
  for (std::size_t i = 0; i < config.layers; ++i) {
    net.set_scope(numbered("h", i));
    x = gpt2_block(net, x, config.heads);
  }
  net.set_scope("");
  x = net.layer_norm(x, {.name = "ln_f"});
  net.output(net.dense(x, kVocabulary, {.bias = false, .tied_to = table, .name = "lm_head"}));
  return net;
}

// The encoder with its pooler and no task's head: BertModel. A loss needs something to compare
// with, so the pooled vector is regressed (mean square), which adds no parameter.
LayerGraph build_bert(int size) {
  constexpr std::int64_t kTokens = 512;
  constexpr std::int64_t kVocabulary = 30522;
  constexpr std::int64_t kSegments = 2;
  const BertConfig& config = kBert[static_cast<std::size_t>(size)];
  LayerGraph net(config.name);
  const LayerId tokens = net.input({kTokens}, {.element_bytes = kTokenBytes, .name = "tokens"});
  const LayerId segments = net.input({kTokens}, {.element_bytes = kTokenBytes, .name = "segments"});
  LayerId x = net.add({net.embedding(tokens, kVocabulary, config.features, "word_embedding"),
                       net.embedding(segments, kSegments, config.features, "segment_embedding")},
                      "embedding_add");
  x = net.add_parameter(x, {kTokens, config.features}, "position_embedding");
  x = net.dropout(net.layer_norm(x, {.name = "embedding_ln"}), "embedding_dropout");
  for (std::size_t i = 0; i < config.layers; ++i) {
    net.set_scope(numbered("layer", i));
    x = bert_block(net, x, config.heads);
  }
  net.set_scope("");
  x = net.dense(net.select_token(x, "first_token"), config.features, {.name = "pooler"});
  net.output(net.activation(x, Activation::kTanh, "pooler_tanh"), Loss::kMeanSquare);
  return net;
}

LayerGraph build_llama(int) {
  const LlamaConfig config;
  LayerGraph net("llama_1b");
  const LayerId tokens =
      net.input({config.tokens}, {.element_bytes = kTokenBytes, .name = "tokens"});
  LayerId x = net.embedding(tokens, config.vocabulary, config.features, "embed_tokens");
  for (std::size_t i = 0; i < config.layers; ++i) {
    net.set_scope(numbered("layer", i));
    x = llama_block(net, x, config);
  }
  net.set_scope("");
  x = net.rms_norm(x, "norm");
  net.output(net.dense(x, config.vocabulary, {.bias = false, .name = "lm_head"}));
  return net;
}

}  // namespace regen
