// The ranks of a job side by side: phases, memory, who limits the others.
#pragma once

#include <launch/record/recorded_run.hpp>

#include <string>

namespace maniple {

std::string rank_table_text(const RecordedJob& job);

}  // namespace maniple
