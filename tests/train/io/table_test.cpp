// Tables as Markdown, CSV and text.
#include "train/io/table.h"

#include <gtest/gtest.h>

namespace ringtape {
namespace {

const Table kTable{{"name", "top-1, %"}, {{"a", "97.5 ± 0.2"}, {"say \"b\"", "-"}}};

TEST(Table, HasSeveralForms) {
  EXPECT_EQ(kTable.markdown(), "| name | top-1, % |\n|---|---|\n| a | 97.5 ± 0.2 |\n| say \"b\" | - |\n");
  EXPECT_EQ(kTable.csv(), "name,\"top-1, %\"\na,97.5 ± 0.2\n\"say \"\"b\"\"\",-\n");
  EXPECT_EQ(kTable.text(), "name     top-1, %\na        97.5 ± 0.2\nsay \"b\"  -\n");
  EXPECT_EQ(kTable.json().text(), R"({"heads":["name","top-1, %"],"rows":[["a","97.5 ± 0.2"],["say \"b\"","-"]]})");
}

// ± takes one column, but two bytes.
TEST(Table, ColumnsAreAsWideAsTheirLongestText) {
  const Table table{{"a", "b"}, {{"1 ± 2", "x"}, {"12345", "y"}}};
  EXPECT_EQ(table.text(), "a      b\n1 ± 2  x\n12345  y\n");
}

TEST(Table, OfObjectsHasAColumnAKey) {
  const Json rows{{{"settings", {{"lr", "0.1"}}}, {"seeds", {2, 4}}, {"loss", {{"mean", 0.5}, {"deviation", 0.25}}}},
                  {{"settings", {{"lr", "0.2"}}}, {"gather", nullptr}, {"sync_bn", true}}};
  EXPECT_EQ(flat_table(rows).csv(), "lr,seeds,loss,loss_deviation,gather,sync_bn\n0.1,2 4,0.5,0.25,,\n0.2,,,,,true\n");
}

}  // namespace
}  // namespace ringtape
