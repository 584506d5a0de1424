#pragma once
#include <cstdint>

// Operands of products by tensor cores (gemm_mma.cuh) of which each step of the depth is kMmaDepth neighbouring
// channels of one tap of a window, the same for a whole block: a thread keeps an address and a bit for each tap, and
// the loop has half the instructions of one that walks. Such an operand X also has:
//   Spot<T> spot(b, i, c) const     of outer index i: its channel c under the first tap
//   Tap tap() const                 the first one
//   void advance(tap, n) const      n channels further
namespace ringtape::cuda {
namespace {

// An address, which may be outside of the memory, and a bit for each tap that is inside.
template <class T> struct Spot {
  const T* at;
  uint32_t taps;
};
struct Tap {
  int c = 0, column = 0, offset = 0;  // its channels; its column in the window; elements behind a Spot
  uint32_t bit = 1;
};
constexpr int kMaxTaps = 32;
template <class X>
concept HasTaps = requires(const X& x) {
  x.tap();
};
template <class X> struct OneTap : X { static constexpr bool kOneTap = true; };
template <class X>
concept ByTap = requires {
  X::kOneTap;
};
template <class X> auto by_tap(const X& x) {
  if constexpr (HasTaps<X>) return OneTap<X>{x};
  else return x;
}

}  // namespace
}  // namespace ringtape::cuda
