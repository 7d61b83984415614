// What `auto` did to find its plan, for people and as JSON (--explain-search).
#pragma once

#include <string>

#include "regen/base/json.h"
#include "regen/graph/graph.h"
#include "regen/search/search_trace.h"

namespace regen::cli {

std::string trace_text(const search::SearchTrace& trace, CostUnit unit);
Json trace_json(const search::SearchTrace& trace);

}  // namespace regen::cli
