#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "comm/store/frame.h"
#include "comm/store/state.h"

namespace ringtape::test {

// Reads the bytes as a store's server does, and does what the frames ask for; ends
// the process where a promise is broken.
inline void drive_frames(const uint8_t* data, size_t size) {
  using namespace comm;
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  size_t answers = 0;
  StoreState state([&](StoreState::Client, const Frame& frame) {
    ++answers;
    const std::string bytes = encode(frame);  // what the server says can be read by a client
    require(parse_frame(bytes).frame.has_value());
  });
  size_t requests = 0;
  for (StoreState::Client client = 1;; client = client % 3 + 1) {
    const Parsed parsed = parse_frame(rest);
    require(!(parsed.frame && parsed.error));
    if (!parsed.frame) break;
    require(parsed.used <= rest.size() && encode(*parsed.frame) == rest.substr(0, parsed.used));
    rest.remove_prefix(parsed.used);
    ++requests;
    if (parsed.frame->type == Frame::Type::bye) state.left(client);
    else state.handle(client, *parsed.frame);
  }
  for (const StoreState::Client client : {1, 2, 3}) state.left(client, "died");
  require(answers <= requests);
}

}  // namespace ringtape::test
