#pragma once
// CUDA's vector types, with the toolkit's sizes and alignments, and the make_ functions that are built into nvcc.

// NOLINTBEGIN: names as CUDA has them
#define RT_VECTOR_TYPE(T, type, align2, align4)                      \
  struct type##1 {                                                   \
    T x;                                                             \
  };                                                                 \
  struct alignas(align2) type##2 {                                   \
    T x, y;                                                          \
  };                                                                 \
  struct type##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(align4) type##4 {                                   \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline type##1 make_##type##1(T x) { return {x}; }                 \
  inline type##2 make_##type##2(T x, T y) { return {x, y}; }         \
  inline type##3 make_##type##3(T x, T y, T z) { return {x, y, z}; } \
  inline type##4 make_##type##4(T x, T y, T z, T w) { return {x, y, z, w}; }

RT_VECTOR_TYPE(signed char, char, 2, 4)
RT_VECTOR_TYPE(unsigned char, uchar, 2, 4)
RT_VECTOR_TYPE(short, short, 4, 8)
RT_VECTOR_TYPE(unsigned short, ushort, 4, 8)
RT_VECTOR_TYPE(int, int, 8, 16)
RT_VECTOR_TYPE(unsigned, uint, 8, 16)
RT_VECTOR_TYPE(long long, longlong, 16, 16)
RT_VECTOR_TYPE(unsigned long long, ulonglong, 16, 16)
RT_VECTOR_TYPE(float, float, 8, 16)
RT_VECTOR_TYPE(double, double, 16, 16)
#undef RT_VECTOR_TYPE

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
// NOLINTEND
