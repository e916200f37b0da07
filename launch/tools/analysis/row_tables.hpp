// The ranks, the steps and the requests of a run, in tables that fit a screen.
#pragma once

#include <launch/tools/analysis/summary.hpp>

#include <string>

namespace maniple {

// The ranks of a job side by side: phases, memory, who limits the others.
std::string rank_table_text(const RecordedJob& job);
// By sequences in the batch: how long a step took, what its time went to, and slots without a token.
std::string step_table_text(const RecordedRun& run);
// Quantiles, and the requests that took longest.
std::string request_table_text(const RecordedRun& run, const Summary& summary);
// "fom: out_tok_per_s = 250.3 tokens/s": one number for a log. The first number of a run without it; empty if it has none.
std::string fom_text(const Summary& summary);

}  // namespace maniple
