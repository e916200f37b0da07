// The readable specification of every operation, in plain fp32 loops on one thread: the oracle of the
// conformance tests. It keeps the contract on bits too (reduction slices, attention splits, vocabulary
// chunks), so whole models give the same bits for every grid and batch.
#pragma once

#include <kernels/reference/host_ops.hpp>

namespace maniple {

class ReferenceOps : public HostOps {
 public:
  using HostOps::HostOps;

#include <kernels/ops_of_backend.inl>

 private:
  void attend(const AttentionCall& call) override;
};

}  // namespace maniple
