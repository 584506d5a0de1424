#pragma once
#include "kernels/cpu/vector.h"

// The transforms of Winograd's F(4x4, 3x3), one vector of channels at a time (Lavin and Gray, 2015;
// points 0, 1, -1, 2, -2): y = A^T [(G w G^T) . (B^T d B)] A for a 6x6 tile d of x, and, for the
// gradient of w, G^T [(A dy A^T) . (B^T d B)] G.
RT_ISA_BEGIN

namespace {

inline constexpr int kTileIn = 6, kTileOut = 4, kTaps = 3, kPoints = kTileIn * kTileIn;

struct InputTransform {  // B^T
  static constexpr int in = kTileIn, out = kTileIn;
  template <class V>
  RT_INLINE static void apply(const V* d, V* o) {
    const V a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
    o[0] = 4 * d[0] + (d[4] - 5 * d[2]);
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = 4 * d[1] + (d[5] - 5 * d[3]);
  }
};

struct OutputTransform {  // A^T
  static constexpr int in = kTileIn, out = kTileOut;
  template <class V>
  RT_INLINE static void apply(const V* m, V* o) {
    const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    o[0] = m[0] + a + c;
    o[1] = b + 2 * e;
    o[2] = a + 4 * c;
    o[3] = b + 8 * e + m[5];
  }
};

struct GradientTransform {  // A
  static constexpr int in = kTileOut, out = kTileIn;
  template <class V>
  RT_INLINE static void apply(const V* g, V* o) {
    const V a = g[0] + g[2], b = g[1] + g[3], c = g[0] + 4 * g[2], e = 2 * g[1] + 8 * g[3];
    o[0] = g[0];
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = g[3];
  }
};

struct WeightTransform {  // G
  static constexpr int in = kTaps, out = kTileIn;
  template <class V>
  RT_INLINE static void apply(const V* w, V* o) {
    const V a = (w[0] + w[2]) * (-1 / 6.f), b = w[1] * (-1 / 6.f), c = w[0] * (1 / 24.f) + w[2] * (1 / 6.f),
            e = w[1] * (1 / 12.f);
    o[0] = w[0] * 0.25f;
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = w[2];
  }
};

struct WeightGradientTransform {  // G^T
  static constexpr int in = kTileIn, out = kTaps;
  template <class V>
  RT_INLINE static void apply(const V* u, V* o) {
    const V a = (u[1] + u[2]) * (-1 / 6.f), b = (u[2] - u[1]) * (1 / 6.f), c = u[3] + u[4],
            e = (u[3] - u[4]) * (1 / 12.f);
    o[0] = u[0] * 0.25f + a + c * (1 / 24.f);
    o[1] = b + e;
    o[2] = a + c * (1 / 6.f) + u[5];
  }
};

// Transforms both axes: read(i, j) returns element (i, j) of the square, write(i, j, v) receives those of the result.
template <class Transform, class Read, class Write>
RT_INLINE void transform_square(const Read& read, const Write& write) {
  using V = Vec<float>;
  constexpr int in = Transform::in, out = Transform::out;
  V half[out][in];
#pragma GCC unroll 6
  for (int j = 0; j < in; ++j) {
    V column[in], result[out];
#pragma GCC unroll 6
    for (int i = 0; i < in; ++i) column[i] = read(i, j);
    Transform::apply(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < out; ++i) {
    V result[out];
    Transform::apply(half[i], result);
#pragma GCC unroll 6
    for (int j = 0; j < out; ++j) write(i, j, result[j]);
  }
}

}  // namespace

RT_ISA_END
