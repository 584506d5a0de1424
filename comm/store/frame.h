#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringtape::comm {

// Messages between a process and the store of its job. On the wire, little-endian:
//   u32 length of what follows, u8 type, u32 request, i64 number, u16 fields,
//   then for each field u32 length and its bytes
struct Frame {
  enum class Type : uint8_t {
    challenge,  // store: number = version of the protocol; a nonce
    proof,      // client: number = version; a nonce, the proof of the token
    welcome,    // store: number = heartbeat in ms; the proof of the token, who hosts the store
    refuse,     // store: why; then it closes
    set,        // client: key, value              -> reply
    set_once,   // client: key, value              -> reply: the value that is set
    get,        // client: key                     -> reply: number = whether it is set; the value if so
    wait,       // client: keys                    -> reply, when one is set: key, value
    cancel,     // client: number = request of a wait that is no longer needed
    add,        // client: key, number             -> reply: number = the sum
    erase,      // client: key                     -> reply
    will,       // client: key, who                -> reply
    beat,       // client: "I am alive"            -> beat
    bye,        // client: "I leave"               -> bye, and both close; store: "I close"
    reply,      // store: carries the request's own number
    error,      // store: the same; why the request cannot be answered
  } type = Type::beat;
  uint32_t request = 0;
  int64_t number = 0;
  std::vector<std::string> fields{};
};

inline constexpr int kProtocol = 1;           // version
inline constexpr size_t kMaxFrame = 1 << 20;  // bytes, with the length
inline constexpr size_t kMaxGreeting = 256;   // the same, for a client that has not yet proved the token
inline constexpr size_t kMaxFields = 16;

std::string encode(const Frame& frame);  // throws CommError if it is longer than kMaxFrame

// The first frame of the received bytes. Neither frame nor error: the frame is not complete yet.
struct Parsed {
  std::optional<Frame> frame;
  size_t used = 0;              // bytes of the frame
  const char* error = nullptr;  // why these bytes are not a frame
};
Parsed parse_frame(std::string_view bytes, size_t limit = kMaxFrame);

}  // namespace ringtape::comm
