#include <algorithm>
#include <array>

#include "regen/base/text.h"
#include "regen/published/monet/format/format_monet_json.h"

namespace regen::published {
namespace {

constexpr std::string_view kNodeFields =
    "id, kind, op, mem, local_memory, local_tensors, fixed_mem, ws_mem_mb, ws_ms, re_ws_mem_mb, "
    "re_ws_ms, ip_ws_mem_mb, ip_ws_ms, args, shape, intermediates, parent, op_idx, bwd_op and "
    "fwd_id";
constexpr std::string_view kTopFields =
    "model, bs, mode, loss, nodes, edges, conv_list, num_conv_algos and inplace_list";
constexpr std::array<std::string_view, 3> kKindNames{"FwdNode", "IntNode", "BwdNode"};
constexpr double kMaxMib = static_cast<double>(kMaxBytes) / (1 << 20);

template <typename T, typename R>
Status store(T& target, R result) {
  if (!result.ok()) return result.error();
  target = static_cast<T>(std::move(result).value());
  return {};
}

Result<std::uint32_t> read_index(const JsonCursor& at, std::size_t limit) {
  REGEN_ASSIGN(const std::int64_t id, at.whole(0, static_cast<std::int64_t>(limit) - 1));
  return static_cast<std::uint32_t>(id);
}

Result<std::vector<std::uint32_t>> read_indices(const JsonCursor& at, std::size_t limit) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<std::uint32_t> ids;
  ids.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const std::uint32_t id, read_index(at.item(i), limit));
    ids.push_back(id);
  }
  return ids;
}

Result<std::vector<std::vector<std::uint32_t>>> read_args(const JsonCursor& at, std::size_t limit) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<std::vector<std::uint32_t>> args;
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(auto list, read_indices(at.item(i), limit));
    args.push_back(std::move(list));
  }
  return args;
}

Result<std::vector<double>> read_numbers(const JsonCursor& at, double limit) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<double> numbers;
  numbers.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const double number, at.item(i).finite());
    if (number > limit || number < -limit) {
      return at.item(i).error(excerpt(at.item(i).value()) + " found, expected at most " +
                              format_exact(limit) + " either way");
    }
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<std::int64_t>> read_shape(const JsonCursor& at) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const std::int64_t length, at.item(i).whole(-kMaxBytes, kMaxBytes));
    shape.push_back(length);
  }
  return shape;
}

Result<std::vector<MonetNode::Intermediate>> read_intermediates(const JsonCursor& at,
                                                                std::size_t num_nodes) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<MonetNode::Intermediate> list;
  for (std::size_t i = 0; i < size; ++i) {
    const JsonCursor item = at.item(i);
    REGEN_ASSIGN(const auto pair, read_indices(item, UINT32_MAX));
    if (pair.size() != 2 || pair[1] >= num_nodes) {
      return item.error("expected a pair of an implementation and a node below " +
                        std::to_string(num_nodes));
    }
    list.push_back({pair[0], pair[1]});
  }
  return list;
}

Result<MonetKind> read_kind(const JsonCursor& at) {
  REGEN_ASSIGN(const std::string name, at.string());
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) {
    return at.error(excerpt(at.value()) + " found, expected FwdNode, IntNode or BwdNode");
  }
  return static_cast<MonetKind>(found - kKindNames.begin());
}

Status read_costs(const JsonCursor& at, const std::string& key, MonetNode& node) {
  MonetCosts& costs = key.starts_with("re_")   ? node.rerun
                      : key.starts_with("ip_") ? node.in_place
                                               : node.first_run;
  if (key.ends_with("_ms")) return store(costs.ms, read_numbers(at, 1e12));
  return store(costs.workspace_mib, read_numbers(at, kMaxMib));
}

Status read_node_field(const JsonCursor& at, const std::string& key, std::size_t id,
                       std::size_t num_nodes, MonetNode& node) {
  if (key == "kind") return store(node.kind, read_kind(at));
  if (key == "op") return store(node.op, at.string());
  if (key == "mem") return store(node.mem, at.whole(0, kMaxBytes));
  if (key == "local_memory") return store(node.local_memory, at.whole(0, kMaxBytes));
  if (key == "local_tensors") return store(node.local_tensors, read_indices(at, num_nodes));
  if (key == "fixed_mem") return store(node.fixed_mem, at.whole(0, kMaxBytes));
  if (key == "args") return store(node.args, read_args(at, num_nodes));
  if (key == "shape") return store(node.shape, read_shape(at));
  if (key == "intermediates") return store(node.intermediates, read_intermediates(at, num_nodes));
  if (key == "parent") return store(node.parent, read_index(at, num_nodes));
  if (key == "op_idx") return store(node.op_idx, read_index(at, UINT32_MAX));
  if (key == "bwd_op") return store(node.bwd_op, at.string());
  if (key == "fwd_id") return store(node.fwd_id, read_index(at, num_nodes));
  if (key.ends_with("ws_ms") || key.ends_with("ws_mem_mb")) return read_costs(at, key, node);
  REGEN_ASSIGN(const std::int64_t given, at.whole(0, INT64_MAX));  // "id"
  if (static_cast<std::size_t>(given) == id) return {};
  return at.error(std::to_string(given) + " found, expected " + std::to_string(id) +
                  ": ids count up from 0 in file order");
}

bool has_field(MonetKind kind, std::string_view key) {
  if (key == "shape" || key == "intermediates") return kind != MonetKind::kBackward;
  if (key == "parent" || key == "op_idx") return kind == MonetKind::kIntermediate;
  if (key == "bwd_op" || key == "fwd_id") return kind == MonetKind::kBackward;
  return true;
}

constexpr std::array kNodeKeys{"id",           "kind",          "op",        "mem",
                               "local_memory", "local_tensors", "fixed_mem", "ws_mem_mb",
                               "ws_ms",        "re_ws_mem_mb",  "re_ws_ms",  "ip_ws_mem_mb",
                               "ip_ws_ms",     "args",          "shape",     "intermediates",
                               "parent",       "op_idx",        "bwd_op",    "fwd_id"};

// Every field of the node's kind must be there, and no other.
Status check_fields(const JsonCursor& at, MonetKind kind) {
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    const bool known = std::find(kNodeKeys.begin(), kNodeKeys.end(), it.key()) != kNodeKeys.end();
    if (!known || !has_field(kind, it.key())) return at.unknown_field(it.key(), kNodeFields);
  }
  for (const char* key : kNodeKeys) {
    if (has_field(kind, key) && !at.value().contains(key)) return at.missing_field(key);
  }
  return {};
}

Result<std::map<std::uint32_t, std::uint32_t>> read_node_map(const JsonCursor& at,
                                                             std::size_t num_nodes) {
  REGEN_TRY(at.expect_object());
  std::map<std::uint32_t, std::uint32_t> map;
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    const auto node = parse_int(it.key());
    if (!node.ok() || *node < 0 || static_cast<std::size_t>(*node) >= num_nodes ||
        it.key() != std::to_string(*node)) {
      return at.error("key " + in_quotes(it.key()) + " found, expected a node below " +
                      std::to_string(num_nodes));
    }
    REGEN_ASSIGN(const std::uint32_t value, read_index(at.member(it.key(), *it), num_nodes));
    map.emplace(static_cast<std::uint32_t>(*node), value);
  }
  return map;
}

Result<std::vector<MonetEdge>> read_edges(const JsonCursor& at, std::size_t num_nodes) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  std::vector<MonetEdge> edges;
  edges.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    const JsonCursor item = at.item(i);
    REGEN_ASSIGN(const auto triple, read_indices(item, UINT32_MAX));
    if (triple.size() != 3 || triple[0] >= triple[1] || triple[1] >= num_nodes) {
      return item.error("expected a triple of a node, a later node below " +
                        std::to_string(num_nodes) + " and an implementation");
    }
    edges.push_back({triple[0], triple[1], triple[2]});
  }
  return edges;
}

}  // namespace

Result<MonetNode> read_monet_node(const JsonCursor& at, std::size_t id, std::size_t num_nodes) {
  REGEN_TRY(at.expect_object());
  const auto kind = at.value().find("kind");
  if (kind == at.value().end()) return at.missing_field("kind");
  MonetNode node;
  REGEN_TRY(store(node.kind, read_kind(at.member("kind", *kind))));
  REGEN_TRY(check_fields(at, node.kind));
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    REGEN_TRY(read_node_field(at.member(it.key(), *it), it.key(), id, num_nodes, node));
  }
  return node;
}

Result<MonetInstance> read_monet_header(const JsonCursor& at, std::size_t num_nodes) {
  REGEN_TRY(at.expect_object());
  for (const char* key :
       {"model", "bs", "mode", "loss", "edges", "conv_list", "num_conv_algos", "inplace_list"}) {
    if (!at.value().contains(key)) return at.missing_field(key);
  }
  MonetInstance instance;
  for (auto it = at.value().begin(); it != at.value().end(); ++it) {
    const std::string& key = it.key();
    const JsonCursor field = at.member(key, *it);
    if (key == "model") {
      REGEN_TRY(store(instance.model, field.string()));
    } else if (key == "bs") {
      REGEN_TRY(store(instance.batch, field.whole(0, kMaxBytes)));
    } else if (key == "mode") {
      REGEN_TRY(store(instance.mode, field.string()));
    } else if (key == "loss") {
      REGEN_TRY(store(instance.loss, read_index(field, num_nodes)));
    } else if (key == "edges") {
      REGEN_TRY(store(instance.edges, read_edges(field, num_nodes)));
    } else if (key == "conv_list") {
      REGEN_TRY(store(instance.conv_list, read_node_map(field, num_nodes)));
    } else if (key == "num_conv_algos") {
      REGEN_TRY(store(instance.num_conv_algos, field.whole(0, INT32_MAX)));
    } else if (key == "inplace_list") {
      REGEN_TRY(store(instance.inplace_list, read_node_map(field, num_nodes)));
    } else if (key != "nodes") {
      return at.unknown_field(key, kTopFields);
    }
  }
  return instance;
}

Result<MonetInstance> read_monet_instance(std::string_view text, const std::string& source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(root.expect_object());
  const auto list = document.find("nodes");
  if (list == document.end()) return root.missing_field("nodes");
  const JsonCursor nodes = root.member("nodes", *list);
  REGEN_ASSIGN(const std::size_t size, nodes.array_size());
  if (size == 0) return nodes.error("an empty array found, expected at least the loss");
  REGEN_ASSIGN(MonetInstance instance, read_monet_header(root, size));
  instance.nodes.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(MonetNode node, read_monet_node(nodes.item(i), i, size));
    instance.nodes.push_back(std::move(node));
  }
  REGEN_TRY(check_monet_instance(instance, root));
  return instance;
}

}  // namespace regen::published
