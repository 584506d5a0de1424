#include <map>
#include <mutex>
#include <string>

#include "core/cuda/device.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "kernels/cuda/conv/conv_plans.h"
#include "kernels/cuda/conv/cudnn_conv.h"

namespace ringtape::cuda {
namespace {

constexpr int kRevision = 1;  // of our kernels: what was measured of others is not looked at

std::string problem_of(const BlockShape& b) {
  const Properties& gpu = properties(b.device.index);
  return concat(gpu.name, " sm_", gpu.major, gpu.minor, ", cuDNN ", uses_cudnn() ? cudnn_version() : 0,
                ", residual block ", kRevision, ", ", b.dtype == DType::f32 ? "tf32" : name_of(b.dtype), ", x ", b.x,
                ", w ", b.w, ", stride ", b.stride);
}

std::mutex mutex;
std::map<std::string, bool>& known() {
  static auto* const map = new std::map<std::string, bool>;
  return *map;
}

}  // namespace

bool prefers_fused(const BlockShape& block) {
  if (arithmetic().deterministic_convolutions || !plan_choices()) return false;
  const std::string problem = problem_of(block);
  const std::lock_guard lock(mutex);
  if (const auto at = known().find(problem); at != known().end()) return at->second;
  const auto kept = plan_choices()->find(problem);
  return known().emplace(problem, kept && *kept == "fused").first->second;
}

void keep_fused(const BlockShape& block, bool fused) {
  if (!plan_choices()) return;
  const std::string problem = problem_of(block);
  const std::lock_guard lock(mutex);
  plan_choices()->replace(problem, fused ? "fused" : "one by one");
  known()[problem] = fused;
}

}  // namespace ringtape::cuda
