// Rectangles of matrices.
#pragma once

#include <kernels/tensor/shape.hpp>

namespace maniple {

// The words (blocks, groups) of `per_word` elements that hold some.
inline IndexRange covering(IndexRange elements, int64_t per_word) {
  return {elements.begin / per_word, (elements.end + per_word - 1) / per_word};
}

struct Box {
  IndexRange rows, columns;

  int64_t elements() const { return rows.size() * columns.size(); }
  bool contains(const Box& other) const {
    return rows.begin <= other.rows.begin && other.rows.end <= rows.end &&
           columns.begin <= other.columns.begin && other.columns.end <= columns.end;
  }
  bool operator==(const Box&) const = default;
};

}  // namespace maniple
