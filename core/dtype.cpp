#include "core/dtype.h"

#include <array>

namespace ringtape {

static constexpr std::array<std::string_view, 8> kNames = {"b8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};

std::string_view name_of(DType dtype) { return kNames[size_t(dtype)]; }

DType parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return DType(i);
  std::string all;
  for (std::string_view known : kNames) all += concat(' ', known);
  detail::fail<UsageError>({"unknown dtype '", name, "': expected one of", all});
}

}  // namespace ringtape
