#include <algorithm>
#include <iterator>
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

constexpr int kRevision = 3;  // of our kernels: what was measured of others is not looked at

std::string problem_of(const BlockShape& b) {
  const Properties& gpu = properties(b.device.index);
  return concat(gpu.name, " sm_", gpu.major, gpu.minor, ", cuDNN ", uses_cudnn() ? cudnn_version() : 0,
                ", residual block ", kRevision, ", ", b.dtype == DType::f32 ? "tf32" : name_of(b.dtype), ", x ", b.x,
                ", w ", b.w, ", stride ", b.stride);
}

constexpr BlockKernels kAll[] = {BlockKernels::one_by_one, BlockKernels::fused, BlockKernels::wgmma};

std::mutex mutex;
std::map<std::string, BlockKernels>& known() {
  static auto* const map = new std::map<std::string, BlockKernels>;
  return *map;
}

}  // namespace

BlockKernels block_kernels(const BlockShape& block) {
  if (arithmetic().deterministic_convolutions || !plan_choices()) return BlockKernels::one_by_one;
  const std::string problem = problem_of(block);
  const std::lock_guard lock(mutex);
  if (const auto at = known().find(problem); at != known().end()) return at->second;
  const auto kept = plan_choices()->find(problem);
  const auto found = std::ranges::find_if(kAll, [&](BlockKernels k) { return kept && *kept == name_of(k); });
  return known().emplace(problem, found == std::end(kAll) ? BlockKernels::one_by_one : *found).first->second;
}

void keep_block_kernels(const BlockShape& block, BlockKernels kernels) {
  if (!plan_choices()) return;
  const std::string problem = problem_of(block);
  const std::lock_guard lock(mutex);
  plan_choices()->replace(problem, name_of(kernels));
  known()[problem] = kernels;
}

}  // namespace ringtape::cuda
