// Elements of 4 or 8 bits in 32-bit little-endian words, several of one row or of one column in a word.
#pragma once

#include <runtime/checkpoint/box.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace maniple {

struct WordPacking {
  int bits = 4;
  bool along_rows = false;  // neighbours of a column share a word, else of a row
  std::array<uint8_t, 8> places = {0, 1, 2, 3,
                                   4, 5, 6, 7};  // where in a word its elements lie, lowest bits first

  int64_t per_word() const { return 32 / bits; }
  // The words of a tensor that hold these elements, and those that make up a matrix of so many.
  Box words_of(const Box& elements) const;
  std::vector<int64_t> stored_shape(int64_t rows, int64_t columns) const;
};

// Element (r, c) of `wanted` goes to out[(r - first row) * row_stride + (c - first column) * column_stride].
// words: the box `held` of the tensor, row by row; it covers words_of(wanted).
void unpack(const WordPacking& packing, std::span<const std::byte> words, const Box& held, const Box& wanted,
            uint8_t* out, int64_t row_stride, int64_t column_stride);

}  // namespace maniple
