// Plans in the form of the published planners (Checkmate, STR): text matrices of zeros and ones,
// one row for each stage, one column for each op. Stage t ends with the first run of op t.
//
//   R[t, i]  op i runs in stage t             1 0 0
//   S[t, i]  i's value is on the device       1 1 0     R of three ops, where op 0 runs again in
//            when stage t begins              1 0 1     the last stage
//   P[t, i]  its copy to the host starts in stage t
//   Q[t, i]  its copy back starts in stage t
//
// The matrices do not say when in a stage something happens. Read here: copies start when the stage
// begins, or once the op has run if it runs in that stage; ops run in the order of their numbers; a
// value that the next stage does not begin with leaves after its last use. A value on its way back
// stays until S or a reader has met it, and what is never met is not fetched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::published {

class StageMatrix {
 public:
  StageMatrix() = default;
  explicit StageMatrix(std::size_t size) : size_(size), bits_(size * size, false) {}

  std::size_t size() const { return size_; }
  bool get(std::size_t stage, std::size_t op) const { return bits_[stage * size_ + op]; }
  void set(std::size_t stage, std::size_t op) { bits_[stage * size_ + op] = true; }

  bool operator==(const StageMatrix&) const = default;

 private:
  std::size_t size_ = 0;
  std::vector<bool> bits_;
};

struct StageMatrices {
  StageMatrix r;
  // Absent: values stay until their last use before they are made or fetched again.
  std::optional<StageMatrix> s;
  StageMatrix p;
  StageMatrix q;

  bool operator==(const StageMatrices&) const = default;
};

// Numbers between blanks, tabs or commas, also as 1.000e+00; a square, with zeros above the
// diagonal. `source` names the text in messages, which give line and column.
Result<StageMatrix> parse_stage_matrix(std::string_view text, const std::string& source);
std::string write_stage_matrix(const StageMatrix& matrix);

// A folder with R.txt and, if there are any, S.txt, P.txt and Q.txt.
Result<StageMatrices> read_stage_matrices(const std::string& folder);
Status write_stage_matrices(const StageMatrices& matrices, const std::string& folder);

// Graphs in which every op makes one tensor, at most 5,000 ops. Whether the plan makes sense, the
// validator says.
Result<Plan> plan_from_matrices(const Graph& graph, const StageMatrices& matrices);

// Refuses plans that matrices cannot hold: first runs in another order, an op twice in one stage.
// Where in a stage something happens is lost.
Result<StageMatrices> matrices_from_plan(const Graph& graph, const Plan& plan);

}  // namespace regen::published
