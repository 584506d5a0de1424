#include "kernels/cuda/conv/wgmma_conv.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/log.h"
#include "kernels/cuda/hopper/probe.h"

namespace ringtape::cuda {

// Whether the GPU, asked once, answers as our kernels expect. It cannot be asked while a graph is recorded.
static bool understands(int gpu) {
  static std::mutex mutex;
  static auto& known = *new std::map<int, bool>;
  const std::lock_guard lock(mutex);
  if (const auto at = known.find(gpu); at != known.end()) return at->second;
  if (recording(gpu)) return false;
  const Device device{DeviceType::cuda, gpu};
  const std::string surprise = hopper_surprise(device);
  if (!surprise.empty())
    log_warn(device, ": ", surprise, ": kernels by wgmma are not used; please report this with the GPU's name");
  return known[gpu] = surprise.empty();
}

bool wgmma_claims(int gpu, DType dtype, const Shape& x, const Shape& w, const Window& p) {
  const Properties& found = properties(gpu);
  if (!RINGTAPE_WGMMA || found.major != 9 || found.minor != 0) return false;
  const int64_t c = x[3], width = x[2];
  const bool window = w[1] == 3 && w[2] == 3 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 1 && p.pad_w == 1 &&
                      p.dilation_h == 1 && p.dilation_w == 1;
  const bool large = width == 16 || width == 32, small = width == 4 || width == 8,
             channels = (c == 64 && large) || (c > 0 && c % 128 == 0 && c <= kWgmmaChannels && (large || small));
  const bool sizes = channels && w[0] == c && w[3] == c && x[1] == width && x[0] > 0 && x[0] * width <= INT32_MAX;
  return window && sizes && (dtype == DType::bf16 || dtype == DType::f16) && understands(gpu);
}

}  // namespace ringtape::cuda
