// Layers on sequences: embeddings, tokens, attention.
#include "regen/models/layers/layers.h"

namespace regen {

LayerId LayerGraph::embedding(LayerId tokens, std::int64_t vocabulary, std::int64_t features,
                              std::string name) {
  if (!check_input("embedding", tokens) ||
      !check_positive("embedding", tokens, vocabulary, "vocabulary") ||
      !check_positive("embedding", tokens, features, "features")) {
    return push({}, "");
  }
  Shape out = shape(tokens);
  out.push_back(features);
  const LayerId y =
      push({.kind = LayerKind::kEmbedding, .inputs = {tokens}, .shape = out}, std::move(name));
  add_param(y, "table", num_elements({vocabulary, features}));
  return y;
}

LayerId LayerGraph::matmul(LayerId a, LayerId b, std::string name) {
  if (!check_input("matmul", a) || !check_input("matmul", b)) return push({}, "");
  Shape out = shape(a);
  Shape right = shape(b);
  const std::size_t rank = out.size();
  const bool fits = rank >= 2 && right.size() == rank && out[rank - 1] == right[rank - 2];
  if (fits) {
    out[rank - 1] = right[rank - 1];
    right[rank - 2] = out[rank - 2];
  }
  if (!fits || out != right) {
    fail("matmul of '" + layers_[a].name + "' " + to_string(shape(a)) + " and '" + layers_[b].name +
         "' " + to_string(shape(b)) + ", expected {..,m,k} and {..,k,n}");
    return push({}, "");
  }
  return push({.kind = LayerKind::kMatmul, .inputs = {a, b}, .shape = std::move(out)},
              std::move(name));
}

LayerId LayerGraph::prepend_token(LayerId x, std::string name) {
  if (!check_input("prepend_token", x, 2)) return push({}, "");
  const Shape& in = shape(x);
  const LayerId y =
      push({.kind = LayerKind::kPrependToken, .inputs = {x}, .shape = {in[0] + 1, in[1]}},
           std::move(name));
  add_param(y, "token", channels(y));
  return y;
}

LayerId LayerGraph::select_token(LayerId x, std::string name) {
  if (!check_input("select_token", x)) return push({}, "");
  Shape out = shape(x);
  if (out.size() < 2) {
    fail("select_token reads '" + layers_[x].name + "' of shape " + to_string(out) +
         ", expected {.., tokens, features}");
    return push({}, "");
  }
  out.erase(out.end() - 2);
  return push({.kind = LayerKind::kSelectToken, .inputs = {x}, .shape = std::move(out)},
              std::move(name));
}

LayerId LayerGraph::rotary(LayerId x, std::string name) {
  return push_same_shape(LayerKind::kRotary, x, std::move(name));
}

LayerId LayerGraph::push_attention(std::vector<LayerId> inputs, std::int64_t head_size, Shape out,
                                   AttentionOptions options) {
  out.back() = options.heads * head_size;
  const LayerId y = push({.kind = LayerKind::kAttention,
                          .inputs = std::move(inputs),
                          .shape = std::move(out),
                          .heads = options.heads,
                          .kv_heads = options.kv_heads,
                          .causal = options.causal},
                         std::move(options.name));
  if (options.bias_parameters > 0) add_param(y, "relative_bias", options.bias_parameters);
  return y;
}

LayerId LayerGraph::attention(LayerId query, LayerId key, LayerId value, AttentionOptions options) {
  for (LayerId x : {query, key, value}) {
    if (!check_input("attention", x)) return push({}, "");
  }
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  const Shape& q = shape(query);
  Shape k = shape(key);
  bool fits = q.size() >= 2 && k.size() == q.size() && k == shape(value) && options.heads >= 1 &&
              options.kv_heads >= 1 && options.heads % options.kv_heads == 0;
  fits = fits && q.back() % options.heads == 0 &&
         k.back() * options.heads == q.back() * options.kv_heads;
  if (!fits) {
    fail("attention with " + std::to_string(options.heads) + " heads and " +
         std::to_string(options.kv_heads) + " key heads on query " + to_string(q) + ", key " +
         to_string(k) + ", value " + to_string(shape(value)) +
         ", expected {.., L, heads*d} and twice {.., M, kv_heads*d}");
    return push({}, "");
  }
  const std::int64_t head_size = q.back() / options.heads;
  return push_attention({query, key, value}, head_size, q, std::move(options));
}

LayerId LayerGraph::attention_packed(LayerId qkv, AttentionOptions options) {
  if (!check_input("attention_packed", qkv)) return push({}, "");
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  const Shape& in = shape(qkv);
  const std::int64_t parts = options.heads + 2 * options.kv_heads;
  if (options.heads < 1 || options.kv_heads < 1 || options.heads % options.kv_heads != 0 ||
      in.size() < 2 || in.back() % parts != 0) {
    fail("attention_packed with " + std::to_string(options.heads) + " heads and " +
         std::to_string(options.kv_heads) + " key heads on " + to_string(in) +
         ", expected {.., L, (heads + 2*kv_heads)*d}");
    return push({}, "");
  }
  return push_attention({qkv}, in.back() / parts, in, std::move(options));
}

LayerId LayerGraph::multi_head_attention(LayerId x, AttentionOptions options, bool bias) {
  if (!check_input("multi_head_attention", x)) return push({}, "");
  const std::int64_t features = channels(x);
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  if (options.heads < 1 || features % options.heads != 0) {
    fail("multi_head_attention: " + std::to_string(options.heads) + " heads do not divide " +
         std::to_string(features) + " features");
    return push({}, "");
  }
  const std::int64_t packed = features / options.heads * (options.heads + 2 * options.kv_heads);
  const LayerId qkv = dense(x, packed, {.bias = bias});
  return dense(attention_packed(qkv, std::move(options)), features, {.bias = bias});
}

}  // namespace regen
