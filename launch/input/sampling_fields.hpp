// Sampling settings from the command line or from one request. Absent ones are left to the layer below.
#pragma once

#include <runtime/requests.hpp>

#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct SamplingFields : StatedSampling {
  std::optional<std::vector<std::string>> stop, bad_words;

  // Writes the stated settings over those of the layer below.
  void apply_to(GenerationRequest& request) const {
    apply(*this, request.sampling);
    if (stop) request.stop = *stop;
    if (bad_words) request.bad_words = *bad_words;
  }
};

}  // namespace maniple
