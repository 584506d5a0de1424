#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringtape::comm {

// What a process and the store of its job say to each other. On the wire, little-endian:
//   u32 length of what follows, u8 type, u32 request, i64 number, u16 fields,
//   then for each field u32 length and its bytes
struct Frame {
  enum class Type : uint8_t {
    challenge,  // store: number = version of the protocol; a nonce
    proof,      // client: number = version; a nonce, what proves the token
    welcome,    // store: number = heartbeat in ms; what proves the token, who hosts the store
    refuse,     // store: why; then it closes
    set,        // client: key, value              -> reply
    set_once,   // client: key, value              -> reply: what it is
    get,        // client: key                     -> reply: number = is it set; the value if so
    wait,       // client: keys                    -> reply, when one is set: key, value
    cancel,     // client: number = request of a wait that is of no use any more
    add,        // client: key, number             -> reply: number = the sum
    erase,      // client: key                     -> reply
    will,       // client: key, who                -> reply
    beat,       // client: "I am there"            -> beat
    bye,        // client: "I leave"               -> bye, and both close; store: "I close"
    reply,      // store: carries the request's own number
    error,      // store: the same; why the request cannot be met
  } type = Type::beat;
  uint32_t request = 0;
  int64_t number = 0;
  std::vector<std::string> fields{};
};

inline constexpr int kProtocol = 1;             // version
inline constexpr size_t kMaxFrame = 1 << 20;    // bytes, with the length
inline constexpr size_t kMaxGreeting = 256;     // the same, of whoever has not proved that he holds the token
inline constexpr size_t kMaxFields = 16;

std::string encode(const Frame& frame);  // throws CommError if it is longer than kMaxFrame

// The frame at the front of what has been received. Neither frame nor error: it is not all there yet.
struct Parsed {
  std::optional<Frame> frame;
  size_t used = 0;              // bytes of the frame
  const char* error = nullptr;  // why these bytes are none
};
Parsed parse_frame(std::string_view bytes, size_t limit = kMaxFrame);

}  // namespace ringtape::comm
