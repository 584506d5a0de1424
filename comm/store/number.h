#pragma once
#include <charconv>
#include <string>

#include "core/check.h"

namespace ringtape::comm {

// The result of Store::add: the sum of the number in `value` (an empty value is 0) and `amount`.
inline int64_t sum_of(const std::string& key, const std::string& value, int64_t amount) {
  int64_t number = 0, sum = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, number);
  RT_CHECK_AS(CommError, value.empty() || (error == std::errc() && at == end), "store: '", key, "' holds '",
              value.substr(0, 40), "', to which no number can be added");
  RT_CHECK_AS(CommError, !__builtin_add_overflow(number, amount, &sum), "store: '", key, "' + ", amount,
              " does not fit into 64 bits");
  return sum;
}

}  // namespace ringtape::comm
