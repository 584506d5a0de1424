#include "kernels/cuda/hopper/tensor_map.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "core/check.h"
#include "core/cuda/check.h"

namespace ringtape::cuda {

// The driver's function: its library is not linked, since a machine without a GPU has none.
static decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    RT_GPU_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
    RT_CHECK_AS(DeviceError, result == cudaDriverEntryPointSuccess && function,
                "the driver has no cuTensorMapEncodeTiled; update it to one for CUDA 12 or later");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return found;
}

CUtensorMap tensor_map(DType dtype, const void* data, std::initializer_list<int64_t> dims,
                       std::initializer_list<int64_t> box) {
  std::vector<cuuint64_t> sizes(dims.begin(), dims.end()), strides;
  std::vector<cuuint32_t> boxes(box.begin(), box.end()), ones(dims.size(), 1);
  cuuint64_t bytes = 2;
  for (const cuuint64_t size : sizes) strides.push_back(bytes *= size);
  CUtensorMap out;
  const CUresult result =
      encoder()(&out, dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                cuuint32_t(dims.size()), const_cast<void*>(data), sizes.data(), strides.data(), boxes.data(),
                ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  RT_CHECK_AS(DeviceError, result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with error ", int(result));
  return out;
}

}  // namespace ringtape::cuda
