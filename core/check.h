#pragma once
#include <stdexcept>

#include "core/text.h"

namespace ringtape {

// Everything the library throws. It never exits and never aborts.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ShapeError : Error {
  using Error::Error;
};  // sizes or axes that do not match
struct DTypeError : Error {
  using Error::Error;
};  // an element type that the operation does not support
struct DeviceError : Error {
  using Error::Error;
};  // a missing device, or operands on different devices
struct AutogradError : Error {
  using Error::Error;
};  // a gradient that cannot be computed from what was recorded
struct UsageError : Error {
  using Error::Error;
};  // an invalid flag, name or value from the user
struct IoError : Error {
  using Error::Error;
};  // a file that cannot be read or written
struct FormatError : Error {
  using Error::Error;
};  // a file with invalid content
struct CommError : Error {
  using Error::Error;
};  // a lost peer, a timeout, a mismatched collective
struct OutOfMemory : Error {
  using Error::Error;
};

namespace detail {
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void fail(TextParts parts) {
  throw E(joined(parts));
}
}  // namespace detail

}  // namespace ringtape

// Throws `Type` with the concatenated message unless `cond` holds. Always on, in every build.
#define RT_CHECK_AS(Type, cond, ...)                             \
  do {                                                           \
    if (!(cond)) [[unlikely]]                                    \
      ::ringtape::detail::fail<::ringtape::Type>({__VA_ARGS__}); \
  } while (0)

// For conditions that only a programming error can break. The message has the condition, the file and the line.
#define RT_CHECK(cond, ...)                                                                          \
  do {                                                                                               \
    if (!(cond)) [[unlikely]]                                                                        \
      ::ringtape::detail::fail<::ringtape::Error>(                                                   \
          {"expected " #cond __VA_OPT__(, ": ", ) __VA_ARGS__, " (", __FILE__, ":", __LINE__, ")"}); \
  } while (0)

// The same for equality; prints both values. Each argument is evaluated once.
#define RT_CHECK_EQ(a, b, ...)                                                                                \
  do {                                                                                                        \
    const auto& rt_a = (a);                                                                                   \
    const auto& rt_b = (b);                                                                                   \
    if (!(rt_a == rt_b)) [[unlikely]]                                                                         \
      ::ringtape::detail::fail<::ringtape::Error>({"expected " #a " == " #b " (", rt_a, " vs. ", rt_b,        \
                                                   ")" __VA_OPT__(, ": ", ) __VA_ARGS__, " (", __FILE__, ":", \
                                                   __LINE__, ")"});                                           \
  } while (0)
