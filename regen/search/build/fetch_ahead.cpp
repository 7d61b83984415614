#include "regen/search/build/fetch_ahead.h"

#include <algorithm>
#include <limits>

namespace regen::search {
namespace {

// Keeps the walk below linear. A copy that takes longer than so many ops stalls in any case.
constexpr std::size_t kMaxLeadOps = 512;

// Where each fetch would start if there were room.
void set_wanted(const Graph& graph, double bandwidth, const std::vector<double>& start,
                std::vector<Return>& returns) {
  double deadline = std::numeric_limits<double>::infinity();
  for (std::size_t i = returns.size(); i-- > 0;) {
    Return& item = returns[i];
    deadline = std::min(deadline, start[item.used]) -
               item.lead * static_cast<double>(graph.bytes(item.tensor)) / bandwidth;
    const auto after = std::upper_bound(start.begin(), start.end(), deadline);
    const auto in_time =
        static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - start.begin(), 1));
    const std::size_t one_ahead = item.used > 0 ? item.used - 1 : 0;
    item.fetched = std::max(item.earliest, std::min(in_time - 1, one_ahead));
  }
}

}  // namespace

void fetch_ahead(const Graph& graph, double bandwidth, Bytes limit, ComputeTimes& computes,
                 std::vector<Return>& returns) {
  set_wanted(graph, bandwidth, computes.start, returns);
  for (Return& item : returns) {
    const Bytes bytes = graph.bytes(item.tensor);
    std::size_t first = item.used;
    while (first > item.fetched && item.used - first < kMaxLeadOps &&
           computes.bytes[first - 1] + bytes <= limit) {
      computes.bytes[--first] += bytes;
    }
    item.fetched = first;
  }
}

}  // namespace regen::search
