#include "regen/search/portfolio/table.h"

#include <algorithm>
#include <array>

namespace regen::search {
namespace {

constexpr std::array<std::string_view, 6> kRounds{"quick",  "rescue",  "exact",
                                                  "resume", "opinion", "repeat"};
constexpr std::array<std::string_view, 8> kParts{"blocks", "start",        "exact_start",
                                                 "hints",  "local_search", "covering_bound",
                                                 "orders", "variants"};

// Up to so many ops the rescue round has time for relaxations; above, a rescue by recomputation is
// all that ends in time.
constexpr std::size_t kSmall = 500;
// Least costs: a plan above is good for nothing but to start from.
constexpr double kExpensive = 1.5;
// The same with many ops, where a rescue takes most of the time there is.
constexpr double kVeryExpensive = 2.5;
// Ops up to which an opinion finds more than it costs.
constexpr std::size_t kOpinionOps = 60;

using enum Round;

constexpr Row kTable[] = {
    {"keep_all", kQuick, 0.1},
    {"vdnn", kQuick, 0.1},
    {"chain", kQuick, 0.1, 20'000},
    // With many ops at tight budgets it is the only one that fits soon (diffusion_unet).
    {"griewank", kQuick, 0.1, 2'000, kSmall + 1},
    {"capuchin", kQuick, 0.1, 4'000},
    // Of all rows only these two give plans with an order of their own.
    {"lower_sets_approx", kQuick, 0.1, 4'000},
    {"lower_sets", kQuick, 0.1, 300},

    {"str", kRescue, 0.5, kSmall, 0, 0, kExpensive},
    {"checkmate", kRescue, 0.5, kSmall, 0, 0, kExpensive},
    {"checkmate", kRescue, 0.2, 3'000, kSmall + 1, 0, kExpensive},
    {"str", kRescue, 0.6, 1'500, kSmall + 1, 0, kVeryExpensive},
    {"checkmate", kRescue, 0.5, 3'000, kSmall + 1, 0, kVeryExpensive},

    {"str", kExact, 0.5, 200, 0, 1'500},
    {"checkmate", kExact, 0.3, 1'500},

    {"str", kResume, 0.7, 500, 0, 1'500},
    {"checkmate", kResume, 0.5, 200, 0, 1'500},

    // Where all else has found an expensive plan or none, before the others and for longer.
    {"str", kOpinion, 0.65, kOpinionOps, 0, 0, kExpensive},
    {"checkmate_lp", kOpinion, 0.2, kOpinionOps},
    {"str_lp", kOpinion, 0.2, kOpinionOps},
    {"str", kOpinion, 0.5, kOpinionOps},
    {"checkmate", kOpinion, 1, kOpinionOps},
    {"str", kRepeat, 0.5, kOpinionOps},
};

std::vector<std::string> every_name() {
  std::vector<std::string> names(kRounds.begin(), kRounds.end());
  names.insert(names.end(), kParts.begin(), kParts.end());
  for (const Row& row : kTable) {
    names.emplace_back(row.planner);
    names.push_back(name_of(row));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::string_view to_string(Round round) {
  return kRounds[static_cast<std::size_t>(round)];
}

std::string_view to_string(Part part) {
  return kParts[static_cast<std::size_t>(part)];
}

std::span<const Row> portfolio_table() {
  return kTable;
}

std::string name_of(const Row& row) {
  return std::string(row.planner) + "@" + std::string(to_string(row.round));
}

Result<Ablation> Ablation::parse(std::span<const std::string> names) {
  const std::vector<std::string> known = every_name();
  Ablation ablation;
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      std::string expected;
      for (const std::string& one : known) expected += (expected.empty() ? "" : ", ") + one;
      return bad_input("'" + name.substr(0, 60) + "' is no part of the search, expected one of " +
                       expected);
    }
    ablation.names_.push_back(name);
  }
  return ablation;
}

bool Ablation::names(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

bool Ablation::without(const Row& row) const {
  return !empty() && (names(row.planner) || names(to_string(row.round)) || names(name_of(row)));
}

bool Ablation::without(Part part) const {
  return !empty() && names(to_string(part));
}

}  // namespace regen::search
