#include "kernels/cuda/libraries.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#if RINGTAPE_CUDNN
#include <cudnn.h>
#endif

#include <cctype>
#include <fstream>

#include "core/check.h"
#include "core/cuda/device.h"
#include "core/env.h"
#include "kernels/cuda/conv/cudnn_conv.h"

namespace ringtape::cuda {

static std::string version(int64_t number, int64_t major, int64_t minor) {
  return concat(number / major, '.', number % major / minor);
}

// "580.65.06", from "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sat Aug ..."; empty if the system does
// not say.
static std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos) return word;
  return {};
}

std::vector<std::pair<std::string, std::string>> libraries() {
  constexpr const char* kOwn = "own kernels";
  int runtime = 0, supported = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  if (cudaDriverGetVersion(&supported) != cudaSuccess) supported = 0;
  std::string driver = supported > 0 ? version(supported, 1000, 10) : "none";
  if (const std::string release = driver_release(); !release.empty()) driver += concat(" (", release, ')');
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("CUDA", version(runtime, 1000, 10));
  out.emplace_back("CUDA driver", driver);
  const auto cublas = int64_t(cublasLtGetVersion());  // 0: the emulation's
  out.emplace_back("cuBLASLt", !env::cublas() ? kOwn : cublas == 0 ? "emulated" : version(cublas, 10000, 100));
  std::string cudnn = kOwn;
#if RINGTAPE_CUDNN
  if (uses_cudnn()) cudnn = cudnnGetVersion() == 0 ? "emulated" : version(int64_t(cudnnGetVersion()), 10000, 100);
#endif
  out.emplace_back("cuDNN", cudnn);
  return out;
}

bool multiplies_bf16(int gpu) { return properties(gpu).major >= 8; }

}  // namespace ringtape::cuda
