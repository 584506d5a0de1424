#include "emulation/matrix.h"

#include <array>
#include <cstring>

#include "core/text.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/shared.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

constexpr int kLanes = 32;
constexpr size_t kRow = 16;  // bytes

struct Transfer {  // of a lane
  char* row;
  uint32_t* registers;
  int count;
  bool transposed;
};
struct Product {
  TensorType type;
  float* d;
  const uint32_t *a, *b;
};

template <class T> T& of(const Thread& t) { return *reinterpret_cast<T*>(t.value); }

template <class T> void meet(WarpOperation operation, T& mine, Place place) {
  warp_operation(operation, ~0u, reinterpret_cast<uint64_t>(&mine), 0, place);
}

// The access belongs to the lane that has the address, before it meets the others.
void transfer(WarpOperation operation, Transfer mine, Place place, const void* pc) {
  {
    const HostCode host;
    const bool stores = operation == WarpOperation::store_matrices;
    if (lane() < 8 * mine.count) {
      if (!is_shared(mine.row)) {
        report("matrix-address", place, "a row of a matrix is not in shared memory");
        abandon();
      }
      if (reinterpret_cast<uintptr_t>(mine.row) % kRow != 0) {
        report("misaligned", place, concat("a row of a matrix that starts at ", describe_shared(mine.row)));
        abandon();
      }
      if (checker) checker->access(mine.row, kRow, stores, pc);
    }
  }
  meet(operation, mine, place);
}

using Matrix = std::array<std::array<uint16_t, 8>, 8>;

// The elements of a fragment: lane, half of the register, row, column.
template <class F> void for_each_element(bool transposed, F f) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int half = 0; half < 2; ++half) {
      const int i = lane / 4, j = lane % 4 * 2 + half;
      f(lane, 16 * half, transposed ? j : i, transposed ? i : j);
    }
}

void load(const Thread* warp) {
  const Transfer& first = of<Transfer>(warp[0]);
  std::array<std::array<uint32_t, kLanes>, 4> found{};
  for (int m = 0; m < first.count; ++m) {
    Matrix x;
    for (int i = 0; i < 8; ++i) std::memcpy(x[size_t(i)].data(), of<Transfer>(warp[8 * m + i]).row, kRow);
    for_each_element(first.transposed, [&](int lane, int shift, int i, int j) {
      found[size_t(m)][size_t(lane)] |= uint32_t(x[size_t(i)][size_t(j)]) << shift;
    });
  }
  for (int m = 0; m < first.count; ++m)
    for (int lane = 0; lane < kLanes; ++lane) of<Transfer>(warp[lane]).registers[m] = found[size_t(m)][size_t(lane)];
}

void store(const Thread* warp) {
  const Transfer& first = of<Transfer>(warp[0]);
  for (int m = 0; m < first.count; ++m) {
    Matrix x;
    for_each_element(first.transposed, [&](int lane, int shift, int i, int j) {
      x[size_t(i)][size_t(j)] = uint16_t(of<Transfer>(warp[lane]).registers[m] >> shift);
    });
    for (int i = 0; i < 8; ++i) std::memcpy(of<Transfer>(warp[8 * m + i]).row, x[size_t(i)].data(), kRow);
  }
}

void transpose(const Thread* warp) {
  Matrix x;
  for_each_element(false, [&](int lane, int shift, int i, int j) {
    x[size_t(i)][size_t(j)] = uint16_t(of<uint32_t>(warp[lane]) >> shift);
  });
  for (int lane = 0; lane < kLanes; ++lane) of<uint32_t>(warp[lane]) = 0;
  for_each_element(true, [&](int lane, int shift, int i, int j) {
    of<uint32_t>(warp[lane]) |= uint32_t(x[size_t(i)][size_t(j)]) << shift;
  });
}

// Lane 4 g + t has of a the elements 2 t and 2 t + 1 of row g, of row g + 8, and the same 8 further on in the depth; of
// b those of column g; of d those of rows g and g + 8. tf32 has one element in place of two, 4 further on.
void multiply(const Thread* warp) {
  const TensorType type = of<Product>(warp[0]).type;
  const int packed = type == TensorType::tf32 ? 1 : 2, depth = 8 * packed;
  if (traffic) ++traffic->products, traffic->multiplied += uint64_t(16 * 8 * depth);
  std::array<std::array<TensorNumber, 16>, 16> a;
  std::array<std::array<TensorNumber, 16>, 8> b;
  const auto number = [&](uint32_t bits, int half) {
    return tensor_number(type, packed == 1 ? bits : bits >> 16 * half & 0xffff);
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const Product& p = of<Product>(warp[lane]);
    for (int half = 0; half < packed; ++half) {
      const size_t g = size_t(lane) / 4, near = size_t(lane % 4 * packed + half), far = near + size_t(depth) / 2;
      a[g][near] = number(p.a[0], half), a[g + 8][near] = number(p.a[1], half);
      a[g][far] = number(p.a[2], half), a[g + 8][far] = number(p.a[3], half);
      b[g][near] = number(p.b[0], half), b[g][far] = number(p.b[1], half);
    }
  }
  const int major = gpu().major;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      float& d = of<Product>(warp[lane]).d[i];
      const size_t row = size_t(lane / 4 + i / 2 * 8), column = size_t(lane % 4 * 2 + i % 2);
      d = tensor_core_sum(type, a[row].data(), b[column].data(), depth, d, major);
    }
}

}  // namespace

void load_matrices(const void* row, uint32_t* registers, int count, bool transposed, Place place) {
  Transfer mine{static_cast<char*>(const_cast<void*>(row)), registers, count, transposed};
  transfer(WarpOperation::load_matrices, mine, place, __builtin_return_address(0));
}

void store_matrices(void* row, const uint32_t* registers, int count, bool transposed, Place place) {
  Transfer mine{static_cast<char*>(row), const_cast<uint32_t*>(registers), count, transposed};
  transfer(WarpOperation::store_matrices, mine, place, __builtin_return_address(0));
}

void transpose_matrix(uint32_t& x, Place place) { meet(WarpOperation::transpose_matrix, x, place); }

void multiply_matrices(TensorType type, float* d, const uint32_t* a, const uint32_t* b, Place place) {
  Product mine{type, d, a, b};
  meet(WarpOperation::multiply_matrices, mine, place);
}

void execute_matrix_operation(WarpOperation operation, const Thread* warp) {
  const bool loads = operation == WarpOperation::load_matrices;
  if (traffic && (loads || operation == WarpOperation::store_matrices)) {
    const void* rows[kLanes];
    const int count = of<Transfer>(warp[0]).count;
    for (int i = 0; i < 8 * count; ++i) rows[i] = of<Transfer>(warp[i]).row;
    count_matrix_rows(rows, count);
  }
  if (loads) load(warp);
  else if (operation == WarpOperation::store_matrices) store(warp);
  else if (operation == WarpOperation::transpose_matrix) transpose(warp);
  else multiply(warp);
}

}  // namespace ringtape::emulation
