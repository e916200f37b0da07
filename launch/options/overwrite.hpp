// Whether an output file may lose its content.
#pragma once

namespace maniple {

// asked: --overwrite. requeued: Slurm has started the job again, so the content is from the job itself.
struct Overwrite {
  bool asked = false;
  bool requeued = false;
  bool quiet = false;  // no note of a requeue
};

}  // namespace maniple
