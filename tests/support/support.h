#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/tensor.h"

// Functions for several test files.
namespace ringtape::test {

// The elements in row-major order, from any dtype, strides and device.
std::vector<double> values(const Tensor& x);

// Whether the bytes of two contiguous host tensors are equal.
bool same_bytes(const Tensor& a, const Tensor& b);

// |a - b| <= atol + rtol |b| elementwise (NaN equals NaN), same shape; adds a failure naming `what` and the position of
// the largest error.
void expect_close(const Tensor& a, const Tensor& b, double rtol, double atol, const std::string& what);

// Whether a text contains a part, or not.
#define EXPECT_MENTIONS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text
#define EXPECT_LACKS(text, part) EXPECT_EQ(std::string(text).find(part), std::string::npos) << text
// That nothing is said, such as by ranks.
#define EXPECT_SILENT(said) EXPECT_EQ(said, "")

// The message of the E that f throws; fails if f throws nothing, or another type.
template <class E, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw another type: " << e.what();
    return e.what();
  }
  ADD_FAILURE() << "did not throw";
  return "";
}

// Runs f with `count` threads, and restores the number.
template <class F> auto with_threads(int count, F&& f) {
  struct Restore {
    int before = threads();
    ~Restore() { set_threads(before); }
  } restore;
  set_threads(count);
  return f();
}

}  // namespace ringtape::test
