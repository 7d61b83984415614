#include "regen/published/monet/format/format_monet_json.h"

namespace regen::published {
namespace {

Status check_node(const MonetInstance& instance, std::uint32_t id, const JsonCursor& at) {
  const MonetNode& node = instance.nodes[id];
  const auto refuse = [&](const std::string& problem) -> Status {
    return at.error("nodes[" + std::to_string(id) + "]: " + problem);
  };
  if ((node.kind == MonetKind::kBackward) != (id > instance.loss)) {
    return refuse("a node of the wrong kind, expected BwdNode after the loss and only there");
  }
  const std::size_t size = node.first_run.ms.size();
  for (const MonetCosts* costs : {&node.first_run, &node.rerun, &node.in_place}) {
    if (size == 0 || costs->ms.size() != size || costs->workspace_mib.size() != size) {
      return refuse("expected six cost lists of one length, at least one entry each");
    }
  }
  for (const auto& list : node.args) {
    for (std::uint32_t arg : list) {
      if (arg >= id) {
        return refuse("args name node " + std::to_string(arg) + ", expected an earlier node");
      }
    }
  }
  const std::size_t implementations = node.kind == MonetKind::kBackward ? node.args.size() : 1;
  if (node.args.empty() || (!instance.conv_list.contains(id) && implementations > size)) {
    return refuse("args for " + std::to_string(node.args.size()) + " implementations found and " +
                  std::to_string(size) + " costs, expected one or more args and a cost for each");
  }
  return {};
}

Status check_links(const MonetInstance& instance, std::uint32_t id, const JsonCursor& at) {
  const MonetNode& node = instance.nodes[id];
  const auto refuse = [&](const std::string& problem) -> Status {
    return at.error("nodes[" + std::to_string(id) + "]: " + problem);
  };
  if (node.kind == MonetKind::kBackward) {
    if (node.fwd_id < instance.loss && instance.nodes[node.fwd_id].kind == MonetKind::kForward) {
      return {};
    }
    return refuse("fwd_id " + std::to_string(node.fwd_id) +
                  " found, expected a FwdNode before the loss");
  }
  if (node.kind == MonetKind::kIntermediate &&
      (node.parent >= id || instance.nodes[node.parent].kind != MonetKind::kForward)) {
    return refuse("parent " + std::to_string(node.parent) + " found, expected an earlier FwdNode");
  }
  for (const MonetNode::Intermediate& item : node.intermediates) {
    const MonetNode& other = instance.nodes[item.node];
    if (other.kind != MonetKind::kIntermediate || other.parent != id ||
        other.op_idx != item.implementation) {
      return refuse("intermediates name node " + std::to_string(item.node) +
                    ", expected an IntNode whose parent and op_idx say the same");
    }
  }
  return {};
}

}  // namespace

Status check_monet_instance(const MonetInstance& instance, const JsonCursor& at) {
  for (std::uint32_t id = 0; id < instance.nodes.size(); ++id) {
    REGEN_TRY(check_node(instance, id, at));
    REGEN_TRY(check_links(instance, id, at));
  }
  if (instance.nodes[instance.loss].kind != MonetKind::kForward) {
    return at.error("loss " + std::to_string(instance.loss) + " found, expected a FwdNode");
  }
  for (const auto& [node, input] : instance.inplace_list) {
    if (node > instance.loss || input >= node) {
      return at.error("inplace_list pairs node " + std::to_string(node) + " with " +
                      std::to_string(input) + ", expected a forward node and an earlier one");
    }
  }
  return {};
}

}  // namespace regen::published
