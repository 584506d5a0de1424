#pragma once
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// A table of texts, with as many cells in each row as there are heads.
struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> rows = {};

  std::string markdown() const;
  std::string csv() const;   // comma-separated values
  std::string text() const;  // columns of equal width, for a terminal
  Json json() const;         // {"heads": [...], "rows": [[...]]}
};

// One row for each of these objects and a column for each of their keys. Of an object within, each member has a column
// of its own: that of "mean" has the object's name, others NAME_MEMBER; in "settings" they have their own names.
Table flat_table(const Json& objects);

}  // namespace ringtape
