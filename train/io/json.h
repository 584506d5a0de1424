#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace ringtape {

// JSON whose strings may hold anything, as paths do: bytes that are not UTF-8 become U+FFFD.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ringtape
