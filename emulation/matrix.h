#pragma once
#include <cstdint>

#include "emulation/report.h"
#include "emulation/tensor_core.h"
#include "emulation/warp.h"

// The matrix instructions of a warp, behind device_matrix.h. All 32 lanes take part; a matrix is 8 rows of 16 bytes.
namespace ringtape::emulation {

struct Thread;

// ldmatrix, stmatrix: lane 8 m + i has the address of row i of matrix m, of `count`, in shared memory. A lane has two
// elements of 16 bits of each matrix, in registers[m]: of row lane / 4, or column if `transposed`.
void load_matrices(const void* row, uint32_t* registers, int count, bool transposed, Place place);
void store_matrices(void* row, const uint32_t* registers, int count, bool transposed, Place place);
void transpose_matrix(uint32_t& x, Place place);  // movmatrix.trans

// mma: d (16 x 8) += a (16 x 16, tf32: 16 x 8) b (as deep, x 8), in the fragments of m16n8k16 and m16n8k8.
void multiply_matrices(TensorType type, float* d, const uint32_t* a, const uint32_t* b, Place place);

// For the warp operations: when all lanes have come.
void execute_matrix_operation(WarpOperation operation, const Thread* warp);

}  // namespace ringtape::emulation
