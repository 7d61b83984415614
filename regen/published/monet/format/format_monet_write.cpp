#include <algorithm>

#include "regen/base/text.h"
#include "regen/published/monet/format/format_monet_json.h"

namespace regen::published {
namespace {

Json node_map_json(const std::map<std::uint32_t, std::uint32_t>& map) {
  Json object = Json::object();
  // By hand, because adding to an ordered object searches all earlier keys.
  auto& members = object.get_ref<Json::object_t&>();
  for (const auto& [node, value] : map) {
    static_cast<std::vector<Json::object_t::value_type>&>(members).emplace_back(
        std::to_string(node), value);
  }
  return object;
}

void put_costs(Json& json, const std::string& prefix, const MonetCosts& costs) {
  json[prefix + "ws_mem_mb"] = costs.workspace_mib;
  json[prefix + "ws_ms"] = costs.ms;
}

}  // namespace

Json monet_node_json(const MonetNode& node, std::size_t id) {
  constexpr const char* kKindNames[] = {"FwdNode", "IntNode", "BwdNode"};
  Json json = Json::object();
  json["id"] = id;
  json["kind"] = kKindNames[static_cast<std::size_t>(node.kind)];
  json["op"] = node.op;
  json["mem"] = node.mem;
  json["local_memory"] = node.local_memory;
  json["local_tensors"] = node.local_tensors;
  json["fixed_mem"] = node.fixed_mem;
  put_costs(json, "", node.first_run);
  put_costs(json, "re_", node.rerun);
  put_costs(json, "ip_", node.in_place);
  json["args"] = node.args;
  if (node.kind != MonetKind::kBackward) {
    json["shape"] = node.shape;
    Json list = Json::array();
    for (const auto& item : node.intermediates) {
      list.push_back(Json::array({item.implementation, item.node}));
    }
    json["intermediates"] = std::move(list);
  }
  if (node.kind == MonetKind::kIntermediate) {
    json["parent"] = node.parent;
    json["op_idx"] = node.op_idx;
  }
  if (node.kind == MonetKind::kBackward) {
    json["bwd_op"] = node.bwd_op;
    json["fwd_id"] = node.fwd_id;
  }
  return json;
}

Json monet_header_json(const MonetInstance& instance) {
  Json json = Json::object();
  json["model"] = instance.model;
  json["bs"] = instance.batch;
  json["mode"] = instance.mode;
  json["loss"] = instance.loss;
  Json edges = Json::array();
  for (const MonetEdge& edge : instance.edges) {
    edges.push_back(Json::array({edge.from, edge.to, edge.implementation}));
  }
  json["edges"] = std::move(edges);
  json["conv_list"] = node_map_json(instance.conv_list);
  json["num_conv_algos"] = instance.num_conv_algos;
  json["inplace_list"] = node_map_json(instance.inplace_list);
  return json;
}

Result<std::string> write_monet_instance(const MonetInstance& instance) {
  const auto bad_name = [](const MonetNode& node) { return !is_utf8(node.op + node.bwd_op); };
  if (!is_utf8(instance.model) || !is_utf8(instance.mode) ||
      std::any_of(instance.nodes.begin(), instance.nodes.end(), bad_name)) {
    return bad_input("MONeT instance " + in_quotes(instance.mode) +
                     ": a name is not UTF-8 text, so JSON cannot hold it");
  }
  const Json header = monet_header_json(instance);
  std::string out = "{";
  for (auto it = header.begin(); it != header.end(); ++it) {
    if (it.key() == "edges") {  // the place of the nodes in the published files
      out += "\"nodes\": [";
      for (std::size_t i = 0; i < instance.nodes.size(); ++i) {
        out += (i == 0 ? "\n" : ",\n") + monet_node_json(instance.nodes[i], i).dump();
      }
      out += "\n],\n";
    }
    out += "\"" + it.key() + "\": " + it->dump() + (std::next(it) == header.end() ? "" : ",\n");
  }
  return out + "}\n";
}

}  // namespace regen::published
