// One declaration for each planner; each is defined in the file of its name.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

Result<Proposal> plan_keep_all(const Problem& problem, Effort& effort);
Result<Proposal> plan_keep_all_ap(const Problem& problem, Effort& effort);
Result<Proposal> plan_chen_greedy(const Problem& problem, Effort& effort);
Result<Proposal> plan_chen_greedy_noap(const Problem& problem, Effort& effort);
Result<Proposal> plan_checkmate(const Problem& problem, Effort& effort);
Result<Proposal> plan_chain(const Problem& problem, Effort& effort);
Result<Proposal> plan_auto(const Problem& problem, Effort& effort);
Result<Proposal> plan_vdnn(const Problem& problem, Effort& effort);
Result<Proposal> plan_capuchin(const Problem& problem, Effort& effort);
Result<Proposal> plan_str(const Problem& problem, Effort& effort);

}  // namespace regen::search
