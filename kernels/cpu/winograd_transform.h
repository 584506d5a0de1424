#pragma once
#include "kernels/cpu/vector.h"

// The transforms of Winograd's F(4x4, 3x3), one vector of channels at a time (Lavin and Gray, 2015):
// y = A^T [(G w G^T) . (B^T d B)] A for a 6x6 tile d of x, and, for the gradient of w, G^T [(A dy A^T) . (B^T d B)] G.
// The points are 0, +-p, +-q with p q = 1, and infinity: p = 2/3 has less than half the rounding error of the usual
// points 1 and 2.
RT_ISA_BEGIN

namespace {

inline constexpr int kTileIn = 6, kTileOut = 4, kTaps = 3, kPoints = kTileIn * kTileIn;

inline constexpr float kP = 2 / 3.f, kQ = 3 / 2.f, kP2 = 4 / 9.f, kQ2 = 9 / 4.f, kP3 = 8 / 27.f, kQ3 = 27 / 8.f;
inline constexpr float kBothSquares = 97 / 36.f;             // p^2 + q^2
inline constexpr float kNp = -81 / 130.f, kNq = 8 / 65.f;    // 1 / (2 p^2 (p^2 - q^2)), 1 / (2 q^2 (q^2 - p^2))

struct InputTransform {  // B^T
  static constexpr int in = kTileIn, out = kTileIn;
  template <class V>
  RT_INLINE static void apply(const V* d, V* o) {
    const V a = d[4] - kQ2 * d[2], b = kP * (d[3] - kQ2 * d[1]), c = d[4] - kP2 * d[2], e = kQ * (d[3] - kP2 * d[1]);
    o[0] = d[0] + (d[4] - kBothSquares * d[2]);
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = d[1] + (d[5] - kBothSquares * d[3]);
  }
};

struct OutputTransform {  // A^T
  static constexpr int in = kTileIn, out = kTileOut;
  template <class V>
  RT_INLINE static void apply(const V* m, V* o) {
    const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    o[0] = m[0] + a + c;
    o[1] = kP * b + kQ * e;
    o[2] = kP2 * a + kQ2 * c;
    o[3] = kP3 * b + kQ3 * e + m[5];
  }
};

struct GradientTransform {  // A
  static constexpr int in = kTileOut, out = kTileIn;
  template <class V>
  RT_INLINE static void apply(const V* g, V* o) {
    const V a = g[0] + kP2 * g[2], b = kP * g[1] + kP3 * g[3], c = g[0] + kQ2 * g[2], e = kQ * g[1] + kQ3 * g[3];
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
    const V a = kNp * w[0] + (kNp * kP2) * w[2], b = (kNp * kP) * w[1], c = kNq * w[0] + (kNq * kQ2) * w[2],
            e = (kNq * kQ) * w[1];
    o[0] = w[0];
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
    const V a = u[1] + u[2], b = u[1] - u[2], c = u[3] + u[4], e = u[3] - u[4];
    o[0] = u[0] + kNp * a + kNq * c;
    o[1] = (kNp * kP) * b + (kNq * kQ) * e;
    o[2] = (kNp * kP2) * a + (kNq * kQ2) * c + u[5];
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
