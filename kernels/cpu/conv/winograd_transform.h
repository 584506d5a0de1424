#pragma once
#include <array>

#include "kernels/cpu/vector/vector.h"

// The transforms of Winograd's F(4x4, 3x3), one vector of channels at a time (Lavin and Gray, 2015):
// y = A^T [(G w G^T) . (B^T d B)] A for a 6x6 tile d of x, and, for the gradient of w, G^T [(A dy A^T) . (B^T d B)] G.
// The points are 0, +-p, +-q with p q = 1, and infinity: p = 2/3 has less than half the rounding error of the usual
// points 1 and 2.
RT_ISA_BEGIN

namespace {

inline constexpr int kTaps = 3;

// a x + b y. The compiler would choose which product it rounds before the sum, differently in each place.
template <class V> RT_INLINE V sum_of_products(float a, V x, float b, V y) {
  V first = a * x;
  in_register(first);
  return first + b * y;
}

inline constexpr float kP = 2 / 3.f, kQ = 3 / 2.f, kP2 = 4 / 9.f, kQ2 = 9 / 4.f, kP3 = 8 / 27.f, kQ3 = 27 / 8.f;
inline constexpr float kBothSquares = 97 / 36.f;           // p^2 + q^2
inline constexpr float kNp = -81 / 130.f, kNq = 8 / 65.f;  // 1 / (2 p^2 (p^2 - q^2)), 1 / (2 q^2 (q^2 - p^2))

// F(4, 3) along one axis.
struct F43 {
  static constexpr int in = 6, out = 4;

  struct Input {  // B^T
    static constexpr int in = 6, out = 6;
    template <class V> RT_INLINE static void apply(const V* d, V* o) {
      const V a = d[4] - kQ2 * d[2], b = kP * (d[3] - kQ2 * d[1]), c = d[4] - kP2 * d[2], e = kQ * (d[3] - kP2 * d[1]);
      o[0] = d[0] + (d[4] - kBothSquares * d[2]);
      o[1] = a + b;
      o[2] = a - b;
      o[3] = c + e;
      o[4] = c - e;
      o[5] = d[1] + (d[5] - kBothSquares * d[3]);
    }
  };

  struct Output {  // A^T
    static constexpr int in = 6, out = 4;
    template <class V> RT_INLINE static void apply(const V* m, V* o) {
      const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
      o[0] = m[0] + a + c;
      o[1] = sum_of_products(kP, b, kQ, e);
      o[2] = sum_of_products(kP2, a, kQ2, c);
      o[3] = sum_of_products(kP3, b, kQ3, e) + m[5];
    }
  };

  struct Gradient {  // A
    static constexpr int in = 4, out = 6;
    template <class V> RT_INLINE static void apply(const V* g, V* o) {
      const V a = g[0] + kP2 * g[2], b = sum_of_products(kP, g[1], kP3, g[3]);
      const V c = g[0] + kQ2 * g[2], e = sum_of_products(kQ, g[1], kQ3, g[3]);
      o[0] = g[0];
      o[1] = a + b;
      o[2] = a - b;
      o[3] = c + e;
      o[4] = c - e;
      o[5] = g[3];
    }
  };

  struct Weight {  // G
    static constexpr int in = 3, out = 6;
    template <class V> RT_INLINE static void apply(const V* w, V* o) {
      const V a = sum_of_products(kNp, w[0], kNp * kP2, w[2]), b = (kNp * kP) * w[1];
      const V c = sum_of_products(kNq, w[0], kNq * kQ2, w[2]), e = (kNq * kQ) * w[1];
      o[0] = w[0];
      o[1] = a + b;
      o[2] = a - b;
      o[3] = c + e;
      o[4] = c - e;
      o[5] = w[2];
    }
  };

  struct WeightGradient {  // G^T
    static constexpr int in = 6, out = 3;
    template <class V> RT_INLINE static void apply(const V* u, V* o) {
      const V a = u[1] + u[2], b = u[1] - u[2], c = u[3] + u[4], e = u[3] - u[4];
      o[0] = u[0] + kNp * a + kNq * c;
      o[1] = sum_of_products(kNp * kP, b, kNq * kQ, e);
      o[2] = sum_of_products(kNp * kP2, a, kNq * kQ2, c) + u[5];
    }
  };
};

// F(2, 3), with the points 0, 1, -1 and infinity.
struct F23 {
  static constexpr int in = 4, out = 2;

  struct Input {
    static constexpr int in = 4, out = 4;
    template <class V> RT_INLINE static void apply(const V* d, V* o) {
      o[0] = d[0] - d[2];
      o[1] = d[1] + d[2];
      o[2] = d[2] - d[1];
      o[3] = d[3] - d[1];
    }
  };

  struct Output {
    static constexpr int in = 4, out = 2;
    template <class V> RT_INLINE static void apply(const V* m, V* o) {
      o[0] = m[0] + (m[1] + m[2]);
      o[1] = (m[1] - m[2]) + m[3];
    }
  };

  struct Weight {
    static constexpr int in = 3, out = 4;
    template <class V> RT_INLINE static void apply(const V* w, V* o) {
      const V a = 0.5f * (w[0] + w[2]), b = 0.5f * w[1];
      o[0] = w[0];
      o[1] = a + b;
      o[2] = a - b;
      o[3] = w[2];
    }
  };
};

// Which rows of the result of a transform are computed together, as bits: more than the registers hold would be stored
// and loaded again, which costs more than reading elements twice.
template <class Rows> inline constexpr std::array kPasses{~0u};
template <> inline constexpr std::array kPasses<F43::Input>{0b011110u, 0b100001u};

template <class Rows, class Cols, unsigned rows, class Read, class Write>
RT_INLINE void transform_rows(const Read& read, const Write& write) {
  using V = Vec<float>;
  V half[Rows::out][Cols::in];
#pragma GCC unroll 6
  for (int j = 0; j < Cols::in; ++j) {
    V column[Rows::in], result[Rows::out];
#pragma GCC unroll 6
    for (int i = 0; i < Rows::in; ++i) column[i] = read(i, j);
    Rows::apply(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < Rows::out; ++i)
      if (rows >> i & 1) in_register(result[i]), half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows::out; ++i) {
    if (!(rows >> i & 1)) continue;
    V result[Cols::out];
    Cols::apply(half[i], result);
#pragma GCC unroll 6
    for (int j = 0; j < Cols::out; ++j) in_register(result[j]);
#pragma GCC unroll 6
    for (int j = 0; j < Cols::out; ++j) write(i, j, result[j]);
  }
}

// Transforms the columns by Rows and then the rows by Cols: read(i, j) returns element (i, j) of the tile, and
// write(i, j, v) receives those of the result. Results are kept in registers where they are computed: a sum that the
// compiler moves to its use is not fused with its product, and the bits would depend on what write() is.
template <class Rows, class Cols, class Read, class Write>
RT_INLINE void transform_tile(const Read& read, const Write& write) {
  transform_rows<Rows, Cols, kPasses<Rows>[0]>(read, write);
  if constexpr (kPasses<Rows>.size() > 1) transform_rows<Rows, Cols, kPasses<Rows>[1]>(read, write);
}

}  // namespace

RT_ISA_END
