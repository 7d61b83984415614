// A start for the local search (local_search.h), found in time linear in the graph: the forward
// pass is cut into blocks, cheap values of a block are dropped, and the backward pass recomputes
// them together when it reaches the block.
//
//   forward ops   a  b  c | d  e  f | g  h | turn      dropped: what costs little for each byte
//   blocks            1   |    2    |  3   |
//
// Values that the re-run of a later block reads are held. Nothing of the last block is dropped.
// While a block is recomputed and reversed, these bytes are live: what is held of earlier blocks,
// all values of the block that the backward pass reads, and the passes' own values at these ops.
// Later blocks have been released by then, so that the first blocks may be large.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/local/interval_evaluator.h"

namespace regen::search {

class IntervalBlocks {
 public:
  // `kept`: the plan that keeps everything. The space must outlive it.
  IntervalBlocks(const IntervalSpace& space, const IntervalPlan& kept);

  // Values that a bound recomputes, a number between 0 and 1 for each op, are dropped first.
  void prefer(const std::vector<double>& again);

  // Drops as little as blocks within `bytes` allow, cheapest values for each byte first, but at
  // least this fraction of the droppable ops. While a block is reversed, `away` bytes that earlier
  // blocks hold are on the host: what is held may move then. The bytes are an estimate: the plan may
  // need a little more. Nothing if no such blocks are found.
  std::optional<Decisions> within(double bytes, double least_fraction = 0, double away = 0) const;

 private:
  struct Cuts {
    std::vector<std::uint32_t> ends;  // the first op behind each block; the last is the turn
  };

  void find_resting();
  void find_prices();
  void sort_by_price();
  void find_extras(const IntervalPlan& kept);
  std::optional<std::size_t> last_forward_op_read(OpId op) const;
  void note_reversal(OpId op, std::size_t at);
  double price(OpId op);
  std::vector<char> cheapest(std::size_t count) const;
  // Of what an op makes, the bytes that are not there after the forward pass.
  double missing_bytes(std::uint32_t op, const std::vector<char>& dropped) const {
    return passing_[op] + (dropped[op] ? resting_[op] : 0);
  }
  // By op: the last op at which a value of it is read again that is not there after the forward
  // pass, by another run or by the backward pass; the op itself if there is none.
  std::vector<std::uint32_t> last_readers(const std::vector<char>& dropped) const;
  std::optional<Cuts> cut(const std::vector<char>& dropped,
                          const std::vector<std::uint32_t>& last_reader, double bytes,
                          double away) const;
  std::uint32_t narrowest(std::uint32_t first, std::uint32_t last,
                          const std::vector<double>& across) const;
  std::vector<double> bytes_across(const std::vector<std::uint32_t>& last_reader,
                                   const std::vector<char>& dropped) const;
  Decisions decide(const std::vector<char>& dropped, const std::vector<std::uint32_t>& last_reader,
                   const Cuts& cuts, bool moves) const;

  const IntervalSpace& space_;
  std::uint32_t turn_ = 0;
  IdVector<TensorId, char> rests_;  // forward values that the backward pass reads
  // By forward op:
  std::vector<double> resting_;  // bytes that it makes and the backward pass reads
  std::vector<double> passing_;  // other bytes that it makes
  std::vector<char> droppable_;
  std::vector<double> price_;  // cost of recomputing it for each resting byte
  std::vector<double> extra_;  // bytes beside the resting ones while it is made or reversed
  std::vector<std::uint32_t>
      reversed_at_;  // where the backward pass is when it first reads a value
  // Droppable ops, the cheapest first. Equal ones in the order of the graph: early values rest
  // longest and come back when there is the most room.
  std::vector<std::uint32_t> by_price_;
  std::vector<std::uint32_t> mark_;
  std::uint32_t round_ = 0;
};

}  // namespace regen::search
