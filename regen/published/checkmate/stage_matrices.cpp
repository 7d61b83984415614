#include "regen/published/checkmate/stage_matrices.h"

#include <algorithm>
#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/text.h"
#include "regen/base/units.h"

namespace regen::published {
namespace {

constexpr std::size_t kMostOps = 5'000;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t first = text.find_first_not_of(separators);
    if (first == std::string_view::npos) return parts;
    text.remove_prefix(first);
    const std::size_t length = std::min(text.find_first_of(separators), text.size());
    parts.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
}

Error bad_entry(const std::string& source, std::size_t line, const std::string& what) {
  return bad_input(source + ": line " + std::to_string(line + 1) + ": " + what);
}

Status read_row(const std::string& source, std::size_t row,
                const std::vector<std::string_view>& entries, StageMatrix& matrix) {
  if (entries.size() != matrix.size()) {
    return bad_entry(source, row,
                     std::to_string(entries.size()) + " entries, expected " +
                         std::to_string(matrix.size()) + ", as many as there are lines");
  }
  for (std::size_t column = 0; column < entries.size(); ++column) {
    const auto value = parse_double(entries[column]);
    const std::string where = "column " + std::to_string(column + 1) + ": ";
    if (!value.ok() || (*value != 0 && *value != 1)) {
      return bad_entry(source, row, where + in_quotes(entries[column]) + ", expected 0 or 1");
    }
    if (*value == 0) continue;
    if (column > row) {
      return bad_entry(source, row,
                       where + "1 above the diagonal, expected 0: op " + std::to_string(column) +
                           " first runs in stage " + std::to_string(column));
    }
    matrix.set(row, column);
  }
  return {};
}

// The tensor that each op makes, and the op that makes each tensor.
class OneForEach {
 public:
  static Result<OneForEach> of(const Graph& graph) {
    if (graph.num_ops() > kMostOps) {
      return bad_input("graph '" + graph.name() + "' has " + format_count(graph.num_ops(), "op") +
                       ", expected at most " + format_grouped(kMostOps) + " for matrices");
    }
    OneForEach result;
    for (OpId op : graph.ops()) {
      const auto makes = graph.makes(graph.default_variant(op));
      if (makes.size() != 1) {
        return bad_input("op " + std::to_string(op.index()) + " '" + graph.name(op) + "' makes " +
                         format_count(makes.size(), "tensor") +
                         ", expected 1: matrices have one column for each op");
      }
      result.made.push_back(makes[0]);
    }
    return result;
  }

  std::vector<TensorId> made;
};

// From matrices to steps, stage by stage.
class Compiler {
 public:
  Compiler(const Graph& graph, const StageMatrices& matrices, std::vector<TensorId> made)
      : graph_(graph), matrices_(matrices), made_(std::move(made)), size_(graph.num_ops()) {
    for (OpId op : graph.ops()) {
      std::vector<std::size_t>& reads = reads_.emplace_back();
      for (TensorId t : graph.reads(graph.default_variant(op))) {
        if (!graph.fixed(t)) reads.push_back(graph.producer(t).index());
      }
    }
    find_needs();
    kept_ = matrices.s ? *matrices.s : needed_;
  }

  Plan run() && {
    std::vector<char> on_device(size_, 0), on_the_way(size_, 0);
    for (std::size_t t = 0; t < size_; ++t) {
      std::vector<std::size_t> uses = start_copies(t, on_device, on_the_way);
      run_ops(t, uses, on_device, on_the_way);
    }
    return std::move(plan_);
  }

 private:
  // needed_: whether a stage must begin with a value, because something reads it, or copies it to
  // the host, before it is made or fetched again. wanted_fetch_: whether a fetch is ever met.
  void find_needs() {
    needed_ = wanted_fetch_ = StageMatrix(size_);
    std::vector<char> need(size_, 0);
    for (OpId op : graph_.ops()) {
      need[op.index()] = graph_.kind(made_[op.index()]) == TensorKind::kOutput;
    }
    for (std::size_t t = size_; t-- > 0;) {
      for (std::size_t i = t + 1; i-- > 0;) {
        if (!matrices_.r.get(t, i)) continue;
        need[i] = 0;
        for (const std::size_t v : reads_[i]) need[v] = 1;
      }
      for (std::size_t i = 0; i < t; ++i) {
        if (matrices_.q.get(t, i) && need[i]) wanted_fetch_.set(t, i);
        if (matrices_.q.get(t, i)) need[i] = 0;
        if (matrices_.p.get(t, i) && !matrices_.r.get(t, i)) need[i] = 1;
        if (need[i]) needed_.set(t, i);
      }
    }
  }

  // The ops after which each value is used for the last time in the stage; size_: not at all.
  std::vector<std::size_t> start_copies(std::size_t t, std::vector<char>& on_device,
                                        std::vector<char>& on_the_way) {
    std::vector<std::size_t> last_use(size_, size_);
    for (std::size_t i = 0; i <= t; ++i) {
      if (!matrices_.r.get(t, i)) continue;
      for (const std::size_t v : reads_[i]) last_use[v] = i;
      last_use[i] = i;
    }
    for (std::size_t i = 0; i < t; ++i) {
      if (matrices_.p.get(t, i) && on_device[i]) plan_.steps.push_back(Step::offload(made_[i]));
    }
    // What the stage neither uses nor hands on goes first, to make room for what comes back.
    for (std::size_t i = 0; i < t; ++i) {
      if (on_device[i] && last_use[i] == size_ && leaves(t, i, on_the_way)) release(i, on_device);
    }
    for (std::size_t i = 0; i < t; ++i) {
      if (!matrices_.q.get(t, i) || on_device[i] || !wanted_fetch_.get(t, i)) continue;
      plan_.steps.push_back(Step::fetch(made_[i]));
      on_device[i] = on_the_way[i] = 1;
    }
    return last_use;
  }

  void run_ops(std::size_t t, const std::vector<std::size_t>& last_use,
               std::vector<char>& on_device, std::vector<char>& on_the_way) {
    for (std::size_t i = 0; i <= t; ++i) {
      if (!matrices_.r.get(t, i)) continue;
      plan_.steps.push_back(Step::compute(OpId(i)));
      const bool was_there = on_device[i];
      on_device[i] = 1;
      if (matrices_.p.get(t, i) && !was_there) plan_.steps.push_back(Step::offload(made_[i]));
      for (const std::size_t v : reads_[i]) on_the_way[v] = 0;
      on_the_way[i] = 0;
      for (const std::size_t v : reads_[i]) {
        if (last_use[v] == i && on_device[v] && leaves(t, v, on_the_way)) release(v, on_device);
      }
      if (last_use[i] == i && leaves(t, i, on_the_way)) release(i, on_device);
    }
    for (std::size_t i = 0; i <= t; ++i) {
      if (t + 1 < size_ && kept_.get(t + 1, i)) on_the_way[i] = 0;
    }
  }

  // Whether the next stage begins without it.
  bool leaves(std::size_t t, std::size_t i, const std::vector<char>& on_the_way) const {
    if (on_the_way[i]) return false;
    if (t + 1 == size_) return graph_.kind(made_[i]) != TensorKind::kOutput;
    return !kept_.get(t + 1, i);
  }

  void release(std::size_t i, std::vector<char>& on_device) {
    plan_.steps.push_back(Step::release(made_[i]));
    on_device[i] = 0;
  }

  const Graph& graph_;
  const StageMatrices& matrices_;
  const std::vector<TensorId> made_;
  const std::size_t size_;
  std::vector<std::vector<std::size_t>> reads_;
  StageMatrix needed_, wanted_fetch_, kept_;
  Plan plan_;
};

Status check_sizes(const Graph& graph, const StageMatrices& matrices) {
  for (const auto& [matrix, name] :
       {std::pair{&matrices.r, "R"}, std::pair{matrices.s ? &*matrices.s : &matrices.r, "S"},
        std::pair{&matrices.p, "P"}, std::pair{&matrices.q, "Q"}}) {
    if (matrix->size() == graph.num_ops()) continue;
    return bad_input(std::string("matrix ") + name + " has " + format_count(matrix->size(), "row") +
                     ", expected " + std::to_string(graph.num_ops()) + ", one for each op of '" +
                     graph.name() + "'");
  }
  for (std::size_t t = 0; t < graph.num_ops(); ++t) {
    if (!matrices.r.get(t, t)) {
      return bad_input("matrix R: 0 in stage " + std::to_string(t) + " for op " +
                       std::to_string(t) + ", expected 1: it first runs there");
    }
  }
  return {};
}

bool touches(const Graph& graph, OpId op, TensorId t) {
  const VariantId v = graph.default_variant(op);
  return std::ranges::find(graph.reads(v), t) != graph.reads(v).end() ||
         std::ranges::find(graph.makes(v), t) != graph.makes(v).end();
}

std::string file_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

Result<StageMatrix> parse_stage_matrix(std::string_view text, const std::string& source) {
  std::vector<std::string_view> lines = split(text, "\r\n");
  std::erase_if(lines, [](std::string_view line) {
    return line.find_first_not_of(" \t,") == std::string_view::npos;
  });
  if (lines.empty()) return bad_input(source + ": no rows, expected a matrix of zeros and ones");
  if (lines.size() > kMostOps) {
    return bad_input(source + ": " + format_count(lines.size(), "row") + ", expected at most " +
                     format_grouped(kMostOps));
  }
  StageMatrix matrix(lines.size());
  for (std::size_t row = 0; row < lines.size(); ++row) {
    REGEN_TRY(read_row(source, row, split(lines[row], " \t,"), matrix));
  }
  return matrix;
}

std::string write_stage_matrix(const StageMatrix& matrix) {
  std::string text;
  text.reserve(2 * matrix.size() * matrix.size());
  for (std::size_t t = 0; t < matrix.size(); ++t) {
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      text += matrix.get(t, i) ? '1' : '0';
      text += i + 1 < matrix.size() ? ' ' : '\n';
    }
  }
  return text;
}

Result<StageMatrices> read_stage_matrices(const std::string& folder) {
  const auto read = [&](const char* name) -> Result<StageMatrix> {
    const std::string path = file_in(folder, name);
    REGEN_ASSIGN(const std::string text, read_file(path, kMostFileBytes));
    return parse_stage_matrix(text, path);
  };
  StageMatrices matrices;
  REGEN_ASSIGN(matrices.r, read("R.txt"));
  matrices.p = matrices.q = StageMatrix(matrices.r.size());
  if (std::filesystem::exists(file_in(folder, "S.txt"))) {
    REGEN_ASSIGN(matrices.s, read("S.txt"));
  }
  if (std::filesystem::exists(file_in(folder, "P.txt"))) {
    REGEN_ASSIGN(matrices.p, read("P.txt"));
  }
  if (std::filesystem::exists(file_in(folder, "Q.txt"))) {
    REGEN_ASSIGN(matrices.q, read("Q.txt"));
  }
  return matrices;
}

Status write_stage_matrices(const StageMatrices& matrices, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return bad_input(folder + ": cannot be made a folder: " + error.message());
  REGEN_TRY(write_file(file_in(folder, "R.txt"), write_stage_matrix(matrices.r)));
  if (matrices.s) {
    REGEN_TRY(write_file(file_in(folder, "S.txt"), write_stage_matrix(*matrices.s)));
  }
  REGEN_TRY(write_file(file_in(folder, "P.txt"), write_stage_matrix(matrices.p)));
  return write_file(file_in(folder, "Q.txt"), write_stage_matrix(matrices.q));
}

Result<Plan> plan_from_matrices(const Graph& graph, const StageMatrices& matrices) {
  REGEN_ASSIGN(OneForEach one, OneForEach::of(graph));
  REGEN_TRY(check_sizes(graph, matrices));
  Plan plan = Compiler(graph, matrices, std::move(one.made)).run();
  plan.planner = "matrices";
  plan.fingerprint = graph.fingerprint();
  return plan;
}

Result<StageMatrices> matrices_from_plan(const Graph& graph, const Plan& plan) {
  REGEN_ASSIGN(const OneForEach one, OneForEach::of(graph));
  const std::size_t size = graph.num_ops();
  StageMatrices matrices{StageMatrix(size), StageMatrix(size), StageMatrix(size),
                         StageMatrix(size)};
  std::vector<char> on_device(size, 0);
  std::size_t stage = 0;
  bool stage_begins = false;
  for (const Step& step : plan.steps) {
    const bool computes = step.kind() == StepKind::kCompute;
    const bool releases = step.kind() == StepKind::kRelease;
    const std::size_t op = computes ? step.op().index() : graph.producer(step.tensor()).index();
    const auto refuse = [&](const std::string& why) {
      return bad_input("a plan with " + describe(graph, step) + " " + why);
    };
    // Behind the last op there is no stage left; what is released there leaves no trace.
    if (stage == size && !releases) return refuse("after the last op is not in stages");
    // What a first run uses and is released right behind it leaves with its stage; what it does
    // not use leaves when the next one begins.
    if (stage_begins && releases && stage < size &&
        !touches(graph, OpId(stage - 1), step.tensor())) {
      matrices.s->set(stage, op);
    }
    if (stage_begins && !releases) {
      stage_begins = false;
      for (std::size_t i = 0; i < stage; ++i) {
        if (on_device[i]) matrices.s->set(stage, i);
      }
    }
    if (computes && op > stage)
      return refuse("before op " + std::to_string(stage) + " is not in stages");
    if (computes && matrices.r.get(stage, op)) return refuse("twice in one stage is not in stages");
    if (computes) matrices.r.set(stage, op);
    if (step.kind() == StepKind::kOffload) matrices.p.set(stage, op);
    if (step.kind() == StepKind::kFetch) matrices.q.set(stage, op);
    if (step.kind() != StepKind::kOffload) on_device[op] = !releases;
    stage_begins |= computes && op == stage;
    stage += computes && op == stage ? 1 : 0;
  }
  if (stage < size)
    return bad_input("a plan that ends before op " + std::to_string(stage) + " is not in stages");
  return matrices;
}

}  // namespace regen::published
