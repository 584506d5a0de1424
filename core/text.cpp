#include "core/text.h"

#include <charconv>

namespace ringtape {

std::string shortest(double x) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  return std::string(buffer, end);
}

}  // namespace ringtape
