#include "emulation/tensor_map.h"

#include <cuda_runtime_api.h>

#include <cstring>

namespace ringtape::emulation {
namespace {

// Of 16-bit numbers, in dense or padded layouts.
bool fits(const TensorMap& m, const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box) {
  for (int i = 0; i < m.rank; ++i) {
    if (dims[i] < 1 || dims[i] > uint64_t{1} << 32 || box[i] < 1 || box[i] > 256) return false;
    if (i + 1 < m.rank && (strides[i] % 16 != 0 || strides[i] >= uint64_t{1} << 40)) return false;
  }
  const size_t row = size_t{box[0]} * m.element;
  return row % 16 == 0 && (!m.swizzled || row <= 128);
}

}  // namespace

size_t TensorMap::rows() const {
  size_t out = 1;
  for (int i = 1; i < rank; ++i) out *= box[i];
  return out;
}

std::optional<TensorMap> tensor_map(const CUtensorMap& map) {
  TensorMap out;
  std::memcpy(&out, &map, sizeof out);
  return out.mark == TensorMap::kMark ? std::optional(out) : std::nullopt;
}

}  // namespace ringtape::emulation

// NOLINTBEGIN: names as CUDA has them
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  using namespace ringtape::emulation;
  const bool known = (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) &&
                     interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                     (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  if (!map || !known || rank < 1 || rank > kMaxRank || reinterpret_cast<uintptr_t>(address) % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  TensorMap out{TensorMap::kMark,
                static_cast<char*>(address),
                {2},
                {},
                {},
                uint8_t(rank),
                2,
                swizzle == CU_TENSOR_MAP_SWIZZLE_128B};
  if (!fits(out, dims, strides, box)) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (element_strides[i] != 1) return CUDA_ERROR_INVALID_VALUE;
    out.dims[i] = uint32_t(dims[i]), out.box[i] = uint16_t(box[i]);
    if (i > 0) out.strides[i] = strides[i - 1];
  }
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &out, sizeof out);
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool found = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = found ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
  if (result) *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
// NOLINTEND
