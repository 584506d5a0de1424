#pragma once
#include <stdexcept>

#include "core/text.h"

namespace ringtape {

// Everything the library throws. It never exits and never aborts.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ShapeError : Error {  // sizes or axes that do not match
  using Error::Error;
};
struct DTypeError : Error {  // an element type that the operation does not support
  using Error::Error;
};
struct DeviceError : Error {  // a missing device, or operands on different devices
  using Error::Error;
};
struct AutogradError : Error {  // a gradient that cannot be computed from what was recorded
  using Error::Error;
};
struct UsageError : Error {  // an invalid flag, name or value from the user
  using Error::Error;
};
struct IoError : Error {  // a file that cannot be read or written
  using Error::Error;
};
struct FormatError : Error {  // a file with invalid content
  using Error::Error;
};
struct CommError : Error {  // a lost peer, a timeout, a mismatched collective
  using Error::Error;
};
struct OutOfMemory : Error {
  using Error::Error;
};

namespace detail {
template <class E> [[noreturn, gnu::cold, gnu::noinline]] void fail(TextParts parts) { throw E(joined(parts)); }
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
