// A rectangle of a matrix.
#pragma once

#include <kernels/tensor/shape.hpp>

namespace maniple {

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
