#pragma once
#include <string>

#include "core/check.h"
#include "core/parse.h"

namespace ringtape::comm {

// The result of Store::add: the sum of the number in `value` (an empty value is 0) and `amount`.
inline int64_t sum_of(const std::string& key, const std::string& value, int64_t amount) {
  const auto number = value.empty() ? 0 : parse_number<int64_t>(value);
  RT_CHECK_AS(CommError, number, "store: '", key, "' holds '", value.substr(0, 40),
              "', to which no number can be added");
  int64_t sum = 0;
  RT_CHECK_AS(CommError, !__builtin_add_overflow(*number, amount, &sum), "store: '", key, "' + ", amount,
              " does not fit into 64 bits");
  return sum;
}

}  // namespace ringtape::comm
