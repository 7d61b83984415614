// A start for the search over intervals (gap_search.h) that is found in time that grows with the graph
// only: the forward pass is cut into blocks, and cheap values of a block are dropped and come back
// together when the backward pass reaches it.
//
//   forward ops   a  b  c | d  e  f | g  h | turn      dropped: what costs little for each byte
//   blocks            1   |    2    |  3   |
//
// What a later block needs to run again is held. Nothing of the last block is dropped. While a
// block is made again and reversed, there are: what is held of earlier blocks, all of the block
// that the backward pass reads, and what the passes hold for themselves at these ops. Later blocks
// are gone by then, so that the first blocks may be large.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/local/interval_repair.h"

namespace regen::search {

class IntervalBlocks {
 public:
  // `kept`: the plan that keeps everything. The space must outlive it.
  IntervalBlocks(const IntervalSpace& space, const IntervalPlan& kept);

  // What somebody thinks should be made again, a number between 0 and 1 for each op, is dropped
  // before anything else.
  void prefer(const std::vector<double>& again);

  // Drops as little as blocks within so many bytes allow, counted in cost for each byte. By an
  // estimate: the plan may come out a little larger. Nothing if no such blocks are found.
  std::optional<IntervalDecisions> within(double bytes) const;
  // The same, but with at least this share of the ops that can be dropped, the cheapest.
  std::optional<IntervalDecisions> within(double bytes, double least_share) const;

 private:
  struct Cuts {
    std::vector<std::uint32_t> ends;  // the first op behind each block; the last is the turn
  };

  void find_resting();
  void find_prices();
  void sort_by_price();
  void find_extras(const IntervalPlan& kept);
  double price(OpId op);
  std::vector<char> cheapest(std::size_t count) const;
  // Of each op, the last that would run again and reads what it makes; itself if there is none.
  std::vector<std::uint32_t> last_readers(const std::vector<char>& dropped) const;
  std::optional<Cuts> cut(const std::vector<char>& dropped,
                          const std::vector<std::uint32_t>& last_reader, double bytes) const;
  std::uint32_t narrowest(std::uint32_t first, std::uint32_t last,
                          const std::vector<double>& across) const;
  std::vector<double> bytes_across(const std::vector<std::uint32_t>& last_reader,
                                   const std::vector<char>& dropped) const;
  IntervalDecisions decide(const std::vector<char>& dropped,
                           const std::vector<std::uint32_t>& last_reader, const Cuts& cuts) const;

  const IntervalSpace& space_;
  std::uint32_t turn_ = 0;
  // Of each forward op:
  std::vector<double> resting_;  // bytes that it makes and the backward pass reads
  std::vector<double> made_;     // bytes that it makes in all
  std::vector<char> droppable_;
  std::vector<double> price_;  // of making it again for each byte that rests
  std::vector<double> extra_;  // bytes beside those that rest while it is made or reversed
  // Those that can be dropped, the cheapest first. Equal ones in the order of the graph: what was
  // made early rests longest and comes back when there is the most room.
  std::vector<std::uint32_t> by_price_;
  std::vector<std::uint32_t> mark_;
  std::uint32_t round_ = 0;
};

}  // namespace regen::search
