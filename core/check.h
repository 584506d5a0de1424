#pragma once
#include <stdexcept>

#include "core/text.h"

namespace ringtape {

// Everything the library throws. It never exits and never aborts.
struct Error : std::runtime_error { using std::runtime_error::runtime_error; };
struct ShapeError : Error { using Error::Error; };    // sizes or axes that do not fit each other
struct DTypeError : Error { using Error::Error; };    // an element type the operation does not take
struct DeviceError : Error { using Error::Error; };   // a device that is absent, or two where one is needed
struct AutogradError : Error { using Error::Error; }; // a gradient that cannot be computed from what was recorded
struct UsageError : Error { using Error::Error; };    // a flag, name or value the user gave
struct IoError : Error { using Error::Error; };       // a file that cannot be read or written
struct FormatError : Error { using Error::Error; };   // a file whose content is not what it should be
struct CommError : Error { using Error::Error; };     // a lost peer, a deadline, a collective that does not match
struct OutOfMemory : Error { using Error::Error; };

namespace detail {
template <class E, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) { throw E(concat(parts...)); }
}  // namespace detail

}  // namespace ringtape

// Throws `Type` with the concatenated message unless `cond` holds. Always on, in every build.
#define RT_CHECK_AS(Type, cond, ...)                                             \
  do {                                                                           \
    if (!(cond)) [[unlikely]] ::ringtape::detail::fail<::ringtape::Type>(__VA_ARGS__); \
  } while (0)

// For what only a programming error can break: the message names the condition and the place.
#define RT_CHECK(cond, ...)                                                                        \
  do {                                                                                             \
    if (!(cond)) [[unlikely]]                                                                      \
      ::ringtape::detail::fail<::ringtape::Error>("expected " #cond __VA_OPT__(, ": ", ) __VA_ARGS__, \
                                                  " (", __FILE__, ":", __LINE__, ")");             \
  } while (0)

// The same for equality; prints both values. Each argument is evaluated once.
#define RT_CHECK_EQ(a, b, ...)                                                                             \
  do {                                                                                                     \
    const auto& rt_a = (a);                                                                                \
    const auto& rt_b = (b);                                                                                \
    if (!(rt_a == rt_b)) [[unlikely]]                                                                      \
      ::ringtape::detail::fail<::ringtape::Error>("expected " #a " == " #b " (", rt_a, " vs. ", rt_b, ")" \
                                                  __VA_OPT__(, ": ", ) __VA_ARGS__, " (", __FILE__, ":",   \
                                                  __LINE__, ")");                                          \
  } while (0)
