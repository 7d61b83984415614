// Optimal reversal of a chain with few checkpoints, by dynamic programming over heterogeneous
// costs (for equal costs it finds the binomial schedules of Griewank and Walther).
//
// Blocks 1..m run one after the other, block j at cost f[j]; the value of 0, the input, is always
// there. To reverse block j one needs its own value and that of block j + 1, as a gradient op
// reads its layer's output and its consumer's. Of the values made on the way only checkpoints
// survive; a checkpoint is dropped when the block before it has been reversed.
//
// C(s, e, c) is the least cost of re-running blocks in order to reverse e, e-1, ..., s+1 when s is
// stored, e+1 is there, and c checkpoints are free. D(s, e, c) is the same with the value of s+1
// there at the end, so that s can be reversed next. With f(a..b) the sum over blocks a to b:
//
//   C(s, s, c) = D(s, s, c) = 0
//   C(s, e, 0) = f(s+1..e) + sum over j in s+1..e-1 of f(s+1..j+1)
//   C(s, e, c) = min over k in s+1..e of f(s+1..k) + D(k, e, c-1) + C(s, k-1, c)
//   D(s, e, c) = min of C(s, e, c) + f[s+1]
//                and, over k, f(s+1..k) + D(k, e, c-1) + D(s, k-1, c)
//
// that is: run on to k and store it; reverse what lies behind k, then k itself; then what lies
// before it. In D with k = s+1 the checkpoint itself is the value wanted at the end.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace regen::published {

// A checkpoint of block `block` (counted from 0) that is stored in the sweep that begins the
// reversal of block `from` (m: in the first forward pass), until block - 1 has been reversed.
struct StoredBlock {
  std::size_t block = 0;
  std::size_t from = 0;

  bool operator==(const StoredBlock&) const = default;
};

class BinomialTable {
 public:
  // Tables for 0..max_slots checkpoints, m * m numbers each.
  BinomialTable(std::vector<double> costs, std::size_t max_slots);

  std::size_t max_slots() const { return layers_.size() - 1; }
  std::size_t num_blocks() const { return costs_.size(); }

  // The least cost of re-runs beyond the first forward pass.
  double extra_cost(std::size_t slots) const;

  // The checkpoints of an optimal schedule.
  std::vector<StoredBlock> schedule(std::size_t slots) const;

 private:
  // What must be there at the end of a reversal: nothing more (C), or the next value (D).
  enum Goal : std::uint8_t { kReversed = 0, kReversedAndNext = 1 };

  struct Split {
    double cost = 0;
    std::uint16_t at = 0;  // 0: run without a checkpoint
  };
  struct Layer {  // for one number of slots, indexed by goal and cell(s, e)
    std::array<std::vector<double>, 2> cost;
    std::array<std::vector<std::uint16_t>, 2> split;

    void put(Goal goal, std::size_t cell, const Split& best) {
      cost[goal][cell] = best.cost;
      split[goal][cell] = best.at;
    }
  };

  double run(std::size_t after, std::size_t last) const { return prefix_[last] - prefix_[after]; }
  std::size_t cell(std::size_t s, std::size_t e) const { return s * (costs_.size() + 1) + e; }
  Layer empty_layer() const;
  void fill_without_slots();
  void fill(std::size_t slots);
  std::vector<double> transposed(const std::vector<double>& table) const;
  // Of the splits of s..e and `without` one, the least cost; what is `before` k begins at s.
  Split best_split(const std::vector<double>& behind, const std::vector<double>& before,
                   std::size_t s, std::size_t e, double without) const;

  std::vector<double> costs_;
  std::vector<double> prefix_;
  std::vector<Layer> layers_;
};

}  // namespace regen::published
