// What the keys and values of a layer are divided by in an FP8 KV cache.
#pragma once

namespace maniple {

struct KvScales {
  float key = 1;
  float value = 1;
};

}  // namespace maniple
