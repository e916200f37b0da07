// The mixer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a bijection of 64 bits.
// For noise, and for hashes of a few words that need not resist an attack; xxHash is for bytes.
#pragma once

#include <cstdint>

namespace maniple {

constexpr uint64_t split_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace maniple
