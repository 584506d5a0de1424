#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtape {

// What a pickle of Python says, as data: nothing is imported, called or executed, so a file from any source is safe to
// read. Values refer to each other by their index in `values`; they may be shared, and form cycles.
// docs.python.org/3/library/pickletools.html has the format.
struct Pickle {
  using Id = uint32_t;
  static constexpr Id kNone = 0;  // the index of None

  enum class Kind : uint8_t {
    none,
    boolean,     // integer
    integer,     // integer
    real,        // real
    text,        // text; bytes too
    tuple,       // items
    list,        // items; sets too
    dict,        // items: key, value, key, value, ...
    global,      // text: "module.name"
    call,        // function, arguments, state; items: what is put into it, if it is a dict
    persistent,  // arguments: what stands for something outside of the pickle
    other        // text: the bytes of an integer of more than 64 bits
  };
  struct Value {
    Kind kind = Kind::none;
    Id function = kNone, arguments = kNone, state = kNone;
    int64_t integer = 0;
    double real = 0;
    std::string text = {};
    std::vector<Id> items = {};
  };

  std::vector<Value> values;
  Id root = kNone;
  size_t bytes = 0;  // that it takes in the text

  const Value& operator[](Id id) const { return values[id]; }
  // The value of a key of a dict, or of what is put into a call; null if it is absent or `id` is neither.
  const Id* find(Id id, std::string_view key) const;
};

inline constexpr uint64_t kLargestPickle = 100'000'000;  // bytes
inline constexpr size_t kMaxPickled = 2'000'000;         // values
inline constexpr size_t kLongestName = 1000;             // bytes of the name of a class, or of a tensor

// Parses the pickle at the beginning of `text`, of protocol 2 or later. Needs about 150 bytes for each value. Throws
// FormatError, beginning with `path`, for anything else, and above the limits above.
Pickle parse_pickle(std::string_view text, const std::string& path);

}  // namespace ringtape
