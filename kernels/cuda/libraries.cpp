#include "kernels/cuda/libraries.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#if RINGTAPE_CUDNN
#include <cudnn.h>
#endif

#include "core/check.h"
#include "core/env.h"

namespace ringtape::cuda {

static std::string version(int64_t number, int64_t major, int64_t minor) {
  if (number == 0) return "emulated";
  return concat(number / major, '.', number % major / minor);
}

std::vector<std::pair<std::string, std::string>> libraries() {
  constexpr const char* kOwn = "own kernels";
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  std::vector<std::pair<std::string, std::string>> out = {{"CUDA", version(CUDART_VERSION, 1000, 10)},
                                                          {"CUDA driver", version(driver, 1000, 10)}};
  out.emplace_back("cuBLASLt", env::cublas() ? version(int64_t(cublasLtGetVersion()), 10000, 100) : kOwn);
  std::string cudnn = kOwn;
#if RINGTAPE_CUDNN
  if (env::cudnn()) cudnn = version(int64_t(cudnnGetVersion()), 10000, 100);
#endif
  out.emplace_back("cuDNN", cudnn);
  return out;
}

}  // namespace ringtape::cuda
