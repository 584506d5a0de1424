#include "train/optim/cells.h"

#include <gtest/gtest.h>

namespace ringtape {
namespace {

TEST(Cells, AreWholeRowsThatDependOnTheShapeAlone) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{4096}, Shape{10'000}, Shape{64, 3, 3, 3}, Shape{512, 4608},
                             Shape{7, 4095}, Shape{3, 65'536}, Shape{2, 65'537}, Shape{1, 200'001}, Shape{5, 1}}) {
    const std::vector<Part> cells = cells_of(shape);
    const int64_t row = shape.rank() == 0 ? 1 : shape.size() / shape[0];
    int64_t at = 0;
    for (const Part& c : cells) {
      EXPECT_EQ(c.begin, at) << shape.str();
      EXPECT_GT(c.size(), 0) << shape.str();
      EXPECT_LE(c.size(), std::max<int64_t>(4096, std::min<int64_t>(row, 65'536))) << shape.str();
      if (row <= 65'536) {
        EXPECT_EQ(c.begin % row, 0) << shape.str();
        const bool full = c.size() > 4096 - row || c.size() == row;  // as many as fit
        EXPECT_TRUE(c.end == shape.size() || full) << shape.str();
      } else {
        EXPECT_EQ(c.begin / row, (c.end - 1) / row) << shape.str();
      }
      at = c.end;
    }
    EXPECT_EQ(at, shape.size());
  }
  EXPECT_TRUE(cells_of({0}).empty());
  EXPECT_TRUE(cells_of({3, 0}).empty());
  EXPECT_EQ(cells_of({512, 4608}).size(), 512u);
}

}  // namespace
}  // namespace ringtape
