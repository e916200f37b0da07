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
  bench       measures throughput, latency, communication, loading and kernels, with a verdict
  tokenize    texts to token ids, or back with --decode
  convert     a model's directory to one HDF5 file, and back
  status      how a run directory stands
  merge       the results of several shards as one file
  report      what was recorded of a run: numbers, comparisons, plots
  scaling     plans a scaling study, and says what to run next

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

inline constexpr std::string_view bench_usage =
    R"(maniple bench WHAT: measures what a job runs on; WHAT is throughput, latency, comm, load or kernels

  mpirun -n 4 maniple bench throughput --model DIR --tp 2 --lengths uniform:64-512/16-256 --num-prompts 200
  mpirun -n 4 maniple bench latency --model DIR --tp 2 --batch-size 1,8,32 --record latency.h5
  mpirun -n 4 maniple bench comm --tp 2 --op all_reduce,broadcast --group tensor --begin 1K --end 16M --json comm.json
  srun --mpi=pmix maniple bench load --model DIR --tp 4 --cold
  mpirun -n 2 maniple bench kernels --model DIR --shapes-of-tp 1,2,4,8 --record kernels.h5

`throughput` serves requests that are all there at once, `latency` batches of them; `comm` measures the collective operations in the
groups that a job of this layout has; `load` reads a model as `generate` does; `kernels` times the parts of a step with random
weights, as a rank of any tensor size has them. Every number is a median over the repeats, with the 95 % interval of this median.
The last line is RESULT VALID, NOISY (an interval is wide) or INVALID, with the reason. Exit code 0 whatever it says; 1 for
INVALID with --require-valid. `report` reads and compares what --record keeps.
)";

inline constexpr std::string_view convert_usage =
    R"(maniple convert: a model's directory to one HDF5 file, and back

  maniple convert DIR model.h5
  maniple convert model.h5 DIR
  maniple convert --check model.h5

--model takes the file in place of the directory. h5dump and h5py show its tensors; each part of a tensor has a checksum. The way
back gives every file as it was, byte for byte. Killed at any time, the same command starts over.
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

inline constexpr std::string_view report_usage =
    R"(maniple report RUN...: what was recorded of runs; RUN is a run directory, the folder of a job, a record (.h5 or .log), or a scaling study

  maniple report runs/r1 --ranks
  maniple report --compare a.h5 b.h5 --require 'out_tok_per_s>=0.98x'
  maniple report runs/r1 --svg plots

The log of a job that runs or was killed is read as far as it goes; --pack makes record.h5 of it.
)";

inline constexpr std::string_view scaling_usage =
    R"(maniple scaling plan|next DIR: a scaling study of `bench throughput`, which is kept in DIR

  maniple scaling plan study --model M --mode strong --dp 1,2,4 --launcher 'mpirun -n {ranks}'
  maniple scaling plan study --model M --mode weak --tp 4 --dp 1,2,4 --ranks-per-node 8 --launcher 'srun --mpi=pmix -N {nodes} -n {ranks}'
  cluster/scaling/run study
  maniple report study

`next` prints the command line to run next, and nothing when all is done. A study goes over --tp, over --pp or over --dp. It may be
stopped or killed at any time: what is measured stays. The options below are those of `plan`. Further ones of bench throughput may follow behind --:
`-- --max-num-seqs 64 --load random`.
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
