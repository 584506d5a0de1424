#include "train/optim/cells.h"

namespace ringtape {

std::vector<Part> cells_of(const Shape& shape) {
  constexpr int64_t kCell = 4096, kLongestRow = 65'536;
  std::vector<Part> out;
  if (shape.size() == 0) return out;
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0], row = shape.size() / rows;
  const int64_t at_once = std::max<int64_t>(1, kCell / row);
  const auto pieces = int((row + kLongestRow - 1) / kLongestRow);
  for (int64_t r = 0; r < rows; r += at_once)
    for (int i = 0; i < pieces; ++i) {
      const Part piece = part_of(row * std::min(at_once, rows - r), pieces, i);
      out.push_back({row * r + piece.begin, row * r + piece.end});
    }
  return out;
}

}  // namespace ringtape
