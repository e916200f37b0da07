// The text above the options in each command's help. "maniple
// COMMAND WORDS: what it does" comes first, examples are indented.
#pragma once

#include <string_view>

namespace maniple {

inline constexpr std::string_view overview =
    R"(maniple: runs a large language model on all ranks of an MPI job

  maniple generate --model DIR --prompt TEXT                                        one rank
  mpirun -n 4 maniple generate --model DIR --tp 2 --in FILE --out FILE              4 ranks: 2 replicas of 2
  srun --mpi=pmix maniple generate --model DIR --tp 2 --in FILE --out FILE          on a Slurm cluster
  maniple tokenize --model DIR --in FILE                                            token ids, no weights

Commands (each has its own --help):
  generate    continue prompts with a model from a Hugging Face directory
  doctor      checks and measures what a job would run on
  tokenize    texts to token ids, or back with --decode
  status      how a run directory stands
  merge       the results of several shards as one file

  -h, --help      this text
  -V, --version   the version, what it was built with, and the CPU paths of this machine
)";

inline constexpr std::string_view generate_usage =
    R"(maniple generate: continues prompts

  mpirun -n 4 maniple generate --model DIR --tp 2 --in prompts.jsonl --out results.jsonl
  maniple generate --model DIR --prompt "ROMEO:" --max-tokens 120
  maniple generate --model DIR --prompt "Who are you?" --chat

  srun --mpi=pmix maniple generate --model DIR --tp 4 --in prompts.jsonl --run-dir runs/r1

Input lines are {"id": ..., "prompt": "..."}, {"id": ..., "messages": [...]} or {"id": ..., "tokens": [...]}, with sampling fields of
their own if need be, or OpenAI's batch lines {"custom_id": ..., "method": "POST", "url": "/v1/completions", "body": {...}}.
The last command resumes: killed at any time, it loses at most the last --sync-interval of finished requests, and the same
command again finishes the rest.
)";

inline constexpr std::string_view doctor_usage =
    R"(maniple doctor: checks the launch and the machines, and measures them; in a job step of its own

  srun --mpi=pmix maniple doctor --model DIR --tp 4 --run-dir runs/r1
  mpirun -n 4 maniple doctor --tp 2 --quick

Give it what `generate` will be given: it takes all its options, and no requests are computed. Without --model it looks at the
launch and the machines alone. Exit code 69 where `generate` would refuse to start.
)";

inline constexpr std::string_view status_usage =
    R"(maniple status DIR...: how the runs in these directories stand, a line each

  maniple status runs/r1
  maniple status runs/r1 --rc; [ $? -eq 75 ] && scontrol requeue $SLURM_JOB_ID
  maniple status runs/r1.* --json
)";

inline constexpr std::string_view merge_usage =
    R"(maniple merge OUT DIR...: the results of all shards of a run, in the order of its input

  maniple merge results.jsonl runs/r1.*        errors, if there are any, go to results.jsonl.errors
)";

inline constexpr std::string_view tokenize_usage =
    R"(maniple tokenize: texts to token ids

  maniple tokenize --model DIR --in texts.jsonl
  maniple tokenize --model DIR --in tokens.jsonl --decode
  maniple tokenize --model DIR --in requests.jsonl --chat

Input lines are {"id": ..., "text": "..."} or "...", with --decode {"id": ..., "tokens": [...]} or [...], with --chat
{"id": ..., "messages": [...], "tools": [...], ...} or lines of an OpenAI batch: the model's chat template makes them prompts.
)";

}  // namespace maniple
