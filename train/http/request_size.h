#pragma once
#include <cstddef>
#include <string_view>

namespace ringtape {

// What the beginning of a request of HTTP/1.1 says about its length.
struct RequestSize {
  size_t head = 0;  // with its empty line; 0: that has not come yet
  size_t body = 0;
  bool asks = false;            // the client waits for "100 Continue" before it sends the body
  const char* wrong = nullptr;  // the status and the reason why it cannot be read: "411 Length Required"
};
RequestSize request_size(std::string_view text);

}  // namespace ringtape
