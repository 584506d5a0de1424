#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector/bf16_emulation.h"
#include "kernels/cpu/vector/by_unit.h"

// Tiles of AMX: eight, of 16 rows of 64 bytes: 16 x 32 bf16 or 16 x 16 f32. Kernels own an Amx for as long as they
// use tiles. Numbers of tiles are template arguments, as they are part of the instructions; strides are in bytes.
namespace ringtape::cpu::RT_ISA {
inline constexpr int64_t kAmxRows = 16, kAmxPairs = 16, kAmxDepth = 2 * kAmxPairs, kAmxTile = kAmxRows * kAmxDepth;
using Row = uint16_t __attribute__((vector_size(64), may_alias));  // of a tile: 32 bf16, or 16 f32
}  // namespace ringtape::cpu::RT_ISA

#if defined(RT_EMULATED) || RT_ISA_LEVEL == 3
RT_ISA_BEGIN

namespace {

#ifdef RT_EMULATED
class EmulatedAmx {
 public:
  template <int tile> void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < kAmxRows; ++r)
      std::memcpy(tiles_[tile][r], static_cast<const char*>(from) + r * stride, sizeof tiles_[tile][r]);
  }
  template <int tile> void store(void* to, int64_t stride) const {
    for (int64_t r = 0; r < kAmxRows; ++r)
      std::memcpy(static_cast<char*>(to) + r * stride, tiles_[tile][r], sizeof tiles_[tile][r]);
  }
  template <int tile> void zero() { std::memset(tiles_[tile], 0, sizeof tiles_[tile]); }
  template <int c, int a, int b> void product() { multiply(tiles_[c], tiles_[a], tiles_[b]); }

  [[gnu::noinline]] static void round(const float* low, const float* high, const float* bias, bf16* to, int64_t count,
                                      bool = false) {
    for (int64_t i = 0; i < std::min(count, kAmxDepth); ++i)
      to[i] = bf16(flushed((i < kAmxPairs ? low[i] : high[i - kAmxPairs]) + bias[i]));
  }
  static void store_line(void* to, Row v, bool) { std::memcpy(to, &v, sizeof v); }

 private:
  using Tile = float[kAmxRows][kAmxPairs];

  // The sums of the even and of the odd products are separate, and added to c at the end.
  [[gnu::noinline]] static void multiply(Tile& c, const Tile& a, const Tile& b) {
    bf16 x[kAmxRows][kAmxDepth], y[kAmxPairs][kAmxDepth];
    std::memcpy(static_cast<void*>(x), a, sizeof x), std::memcpy(static_cast<void*>(y), b, sizeof y);
    for (int64_t r = 0; r < kAmxRows; ++r) {
      float even[kAmxPairs] = {}, odd[kAmxPairs] = {};
      for (int64_t p = 0; p < kAmxPairs; ++p)
        for (int64_t j = 0; j < kAmxPairs; ++j) {
          even[j] = add_product(even[j], x[r][2 * p], y[p][2 * j]);
          odd[j] = add_product(odd[j], x[r][2 * p + 1], y[p][2 * j + 1]);
        }
      for (int64_t j = 0; j < kAmxPairs; ++j) c[r][j] = flushed(flushed(c[r][j]) + flushed(even[j] + odd[j]));
    }
  }

  Tile tiles_[8];
};
using Amx = EmulatedAmx;
#else
// GCC 12's own intrinsics do not say that they read and write memory.
class Amx {
 public:
  Amx() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  ~Amx() {
    asm volatile("tilerelease");  // else each switch of threads saves 8 KiB more
    _mm_sfence();                 // others see the lines of store_line()
  }
  Amx(const Amx&) = delete;
  Amx& operator=(const Amx&) = delete;

  template <int tile> RT_INLINE void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile> RT_INLINE void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile> RT_INLINE void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(tile)); }
  // c (16 x 16 f32) += a (16 rows of 16 pairs) b (16 pairs of rows, interleaved: pair p of column j is 2 j, 2 j + 1).
  template <int c, int a, int b> RT_INLINE void product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }

  // `stream`: whole lines go to memory without being read first.
  RT_INLINE static void store_line(void* to, Row v, bool stream) {
    if (stream && reinterpret_cast<uintptr_t>(to) % sizeof v == 0)
      _mm512_stream_si512(static_cast<__m512i*>(to), __m512i(v));
    else std::memcpy(to, &v, sizeof v);
  }
  // 32 columns, of two halves: to[i] = sums + bias, rounded to nearest, of a subnormal sum zero; i < count.
  RT_INLINE static void round(const float* low, const float* high, const float* bias, bf16* to, int64_t count,
                              bool stream = false) {
    using cpu::RT_ISA::load;
    const Vec<float> a = load(low) + load(bias), b = load(high) + load(bias + kAmxPairs);
    Row v;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(v) : "v"(a), "v"(b));
    if (count >= kAmxDepth) store_line(to, v, stream);
    else std::memcpy(static_cast<void*>(to), &v, size_t(count) * sizeof(bf16));
  }
};
#endif

}  // namespace

RT_ISA_END
#endif
