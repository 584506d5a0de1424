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
  return concat(number / major, '.', number % major / minor);
}

std::vector<std::pair<std::string, std::string>> libraries() {
  constexpr const char* kOwn = "own kernels";
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("CUDA", version(CUDART_VERSION, 1000, 10));
  out.emplace_back("CUDA driver", driver > 0 ? version(driver, 1000, 10) : "none");
  const auto cublas = int64_t(cublasLtGetVersion());  // 0: the emulation's
  out.emplace_back("cuBLASLt", !env::cublas() ? kOwn : cublas == 0 ? "emulated" : version(cublas, 10000, 100));
  std::string cudnn = kOwn;
#if RINGTAPE_CUDNN
  if (env::cudnn()) cudnn = version(int64_t(cudnnGetVersion()), 10000, 100);
#endif
  out.emplace_back("cuDNN", cudnn);
  return out;
}

}  // namespace ringtape::cuda
