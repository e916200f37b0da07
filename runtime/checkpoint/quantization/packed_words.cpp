#include <runtime/checkpoint/quantization/packed_words.hpp>

#include <algorithm>
#include <cstring>

namespace maniple {

Box WordPacking::words_of(const Box& elements) const {
  if (along_rows) return {covering(elements.rows, per_word()), elements.columns};
  return {elements.rows, covering(elements.columns, per_word())};
}

std::vector<int64_t> WordPacking::stored_shape(int64_t rows, int64_t columns) const {
  const Box words = words_of({{0, rows}, {0, columns}});
  return {words.rows.end, words.columns.end};
}

void unpack(const WordPacking& packing, std::span<const std::byte> words, const Box& held, const Box& wanted,
            uint8_t* out, int64_t row_stride, int64_t column_stride) {
  const Box needed = packing.words_of(wanted);
  require(held.contains(needed), "words outside what is held");
  const int64_t per_word = packing.per_word();
  const uint32_t mask = (1U << packing.bits) - 1;
  const IndexRange packed = packing.along_rows ? wanted.rows : wanted.columns;
  const int64_t stride = packing.along_rows ? row_stride : column_stride;
  for (int64_t row = needed.rows.begin; row < needed.rows.end; ++row)
    for (int64_t column = needed.columns.begin; column < needed.columns.end; ++column) {
      uint32_t word = 0;
      std::memcpy(&word,
                  &words[static_cast<size_t>((row - held.rows.begin) * held.columns.size() + column -
                                             held.columns.begin) *
                         sizeof word],
                  sizeof word);
      const int64_t first = (packing.along_rows ? row : column) * per_word;
      uint8_t* const line = out + (packing.along_rows ? (column - wanted.columns.begin) * column_stride
                                                      : (row - wanted.rows.begin) * row_stride);
      const int64_t end = std::min(packed.end - first, per_word);
      for (int64_t i = std::max<int64_t>(packed.begin - first, 0); i < end; ++i)
        line[(first + i - packed.begin) * stride] =
            static_cast<uint8_t>(word >> (packing.bits * packing.places[static_cast<size_t>(i)]) & mask);
    }
}

}  // namespace maniple
