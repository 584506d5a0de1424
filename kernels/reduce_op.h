#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringtape {

// How a collective combines the ranks' values.
enum class ReduceOp : uint8_t { sum, avg, max, min, product };
constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "avg", "max", "min", "product"};
  return names[size_t(op)];
}

}  // namespace ringtape
