// regen profile: what every op of a captured step takes on a device.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/runtime/prepared_step.h"
#include "cli/runtime/verbs.h"
#include "regen/base/file.h"
#include "regen/graph/format_regen.h"

namespace regen::cli {
namespace {

struct ProfileArguments {
  ProgramArgument program;
  std::string output;
  bool json = false;
};

// All ops of one type, or all ops.
struct OpGroup {
  std::string type;
  std::size_t count = 0;
  double seconds = 0;
  Bytes output_bytes = 0;
  Bytes workspace = 0;  // of the op that needs most

  void add(const Graph& graph, OpId op) {
    const VariantId variant = graph.variants(op)[0];
    ++count;
    seconds += graph.cost(variant);
    for (const TensorId t : graph.makes(variant)) output_bytes += graph.bytes(t);
    workspace = std::max(workspace, graph.workspace(variant));
  }
};

struct Profile {
  std::vector<OpGroup> groups;  // the slowest first
  OpGroup total{.type = "total"};
};

Profile make_profile(const execute::StepGraph& step) {
  std::map<std::string, OpGroup> by_type;
  Profile profile;
  for (const OpId op : step.graph.ops()) {
    if (op == step.boundary) continue;
    OpGroup& group = by_type[std::string(step.graph.type(op))];
    group.type = step.graph.type(op);
    group.add(step.graph, op);
    profile.total.add(step.graph, op);
  }
  for (auto& [type, group] : by_type) profile.groups.push_back(std::move(group));
  std::stable_sort(profile.groups.begin(), profile.groups.end(),
                   [](const OpGroup& a, const OpGroup& b) { return a.seconds > b.seconds; });
  return profile;
}

double share(const OpGroup& group, const Profile& profile) {
  return profile.total.seconds > 0 ? group.seconds / profile.total.seconds : 0;
}

Json group_json(const OpGroup& group, const Profile& profile) {
  return {{"type", group.type},
          {"count", group.count},
          {"seconds", json_number(group.seconds)},
          {"share", json_number(share(group, profile))},
          {"output_bytes", group.output_bytes},
          {"workspace_bytes", group.workspace}};
}

Json profile_json(const PreparedStep& prepared, const Profile& profile) {
  Json groups = Json::array();
  for (const OpGroup& group : profile.groups) groups.push_back(group_json(group, profile));
  return {{"program", prepared.program().name},
          {"device", prepared.device().name()},
          {"types", groups},
          {"total", group_json(profile.total, profile)},
          {"fixed_bytes", prepared.graph().fixed_bytes()},
          {"link", session::link_json(prepared.recorded.link().known().value_or(Link{}))}};
}

std::string rate(double bytes_per_second) {
  return format_bytes(static_cast<Bytes>(bytes_per_second)) + "/s";
}

std::string profile_text(const PreparedStep& prepared, const Profile& profile) {
  using enum Table::Align;
  Table table({{"type"},
               {"count", kRight},
               {"time", kRight},
               {"share", kRight},
               {"outputs", kRight},
               {"workspace", kRight}});
  const auto add = [&](const OpGroup& group) {
    table.add({group.type, std::to_string(group.count),
               format_cost(group.seconds, CostUnit::kSecond),
               decimals(100 * share(group, profile), 1) + " %", format_bytes(group.output_bytes),
               format_bytes(group.workspace)});
  };
  for (const OpGroup& group : profile.groups) add(group);
  add(profile.total);
  const Link& link = prepared.recorded.link().known().value_or(Link{});
  return table.text() + "\n" +
         facts({{"program", prepared.program().name + ", fixed bytes " +
                                full_bytes(prepared.graph().fixed_bytes())},
                {"device", prepared.device().name()},
                {"copies", rate(link.to_host) + " to the host, " + rate(link.to_device) +
                               " to the device, " + rate(link.both) + " both at once"}});
}

Status run_profile(const ProfileArguments& arguments) {
  REGEN_ASSIGN(const PreparedStep prepared,
               prepare_step(arguments.program, {.needs_data = false, .measures_link = true}));
  const Profile profile = make_profile(*prepared.recorded.step());
  if (!arguments.output.empty()) {
    REGEN_ASSIGN(const std::string graph, write_regen_graph(prepared.graph()));
    REGEN_TRY(write_file(arguments.output, graph));
    if (arguments.output == "-") return {};
  }
  if (arguments.json) return print_json(profile_json(prepared, profile));
  return print(profile_text(prepared, profile));
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "profile", "Measure the ops of a captured step on a device",
                            "  regen profile resnet50.program -o resnet50.json\n"
                            "  regen plan resnet50.json --budget 4GiB -o plan.json");
  auto arguments = std::make_shared<ProfileArguments>();
  add_program(verb, arguments->program);
  add_output(verb, arguments->output, "Write the step as a graph with these costs here");
  add_json(verb, arguments->json);
  set_action<ProfileArguments>(verb, action, arguments, run_profile);
}

}  // namespace regen::cli
