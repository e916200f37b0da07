// Whether an output file may lose its content.
#pragma once

namespace maniple {

// asked: --overwrite. requeued: Slurm has started the job again, so that the job itself has left the content.
struct Overwrite {
  bool asked = false;
  bool requeued = false;
  bool quiet = false;  // no note of a requeue
};

}  // namespace maniple
