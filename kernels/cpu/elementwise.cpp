#include "kernels/cpu/elementwise.h"

#include "core/parallel.h"
#include "kernels/cpu/wide.h"

RT_ISA_BEGIN

namespace {

// Blocks of dense bf16 are converted in the order of lanes (wide.h): f does not see which element is where.
template <class C, size_t N>
bool in_order_of_lanes(const std::array<Operand, N>& operands) {
  if (kHalves<bf16> == 1 || !std::is_same_v<C, float> || operands[0].dtype != DType::bf16) return false;
  for (size_t k = 0; k < N; ++k)
    if (!(operands[k].dense && operands[k].dtype == DType::bf16) && !(k > 0 && operands[k].constant)) return false;
  return true;
}

// As Operand::load and store; n is a multiple of kWide.
template <class C>
void load_lanes(const Operand& x, int64_t begin, int64_t n, C* buffer) {
  if constexpr (std::is_same_v<C, float>) {
    const bf16* const from = reinterpret_cast<const bf16*>(x.data) + begin;
    for (int64_t i = 0; i < n; i += kWide<bf16>) store_in_order<bf16>(buffer + i, load_wide(from + i, kWide<bf16>));
  }
}
template <class C>
void store_lanes(const Operand& y, int64_t begin, int64_t n, const C* buffer) {
  if constexpr (std::is_same_v<C, float>) {
    bf16* const to = reinterpret_cast<bf16*>(y.data) + begin;
    for (int64_t i = 0; i < n; i += kWide<bf16>) store_wide(to + i, load_in_order<bf16>(buffer + i), kWide<bf16>);
  }
}

}  // namespace

template <class C, size_t N>
void map_blocks(Block<C> block, const void* f, const std::array<View, N>& views) {
  const int64_t n = views[0].size();
  if (n == 0) return;
  const auto operands = operands_of(views);
  const bool direct_y = operands[0].dense && views[0].dtype == dtype_of<C>::value;
  bool direct = direct_y;  // nothing to convert or gather: one block
  for (const Operand& o : operands) direct = direct && o.dense && o.dtype == dtype_of<C>::value;
  const bool wide = in_order_of_lanes<C>(operands);

  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    C buffers[N][kBlock];
    const C* x[N - 1];
    const int64_t step = direct ? end - begin : kBlock;
    for (size_t k = 1; k < N; ++k)
      if (operands[k].constant) x[k - 1] = operands[k].load(0, std::min(step, end - begin), buffers[k]);
    for (int64_t at = begin, count = 0; at < end; at += count) {
      count = std::min(step, end - at);
      const bool lanes = wide && count >= kWide<bf16>;
      if (lanes) count -= count % kWide<bf16>;
      for (size_t k = 1; k < N; ++k) {
        if (operands[k].constant) continue;
        if (lanes) load_lanes(operands[k], at, count, buffers[k]), x[k - 1] = buffers[k];
        else x[k - 1] = operands[k].load(at, count, buffers[k]);
      }
      C* const y = direct_y ? reinterpret_cast<C*>(operands[0].data) + at : buffers[0];
      block(f, y, x, count);
      if (lanes) store_lanes(operands[0], at, count, buffers[0]);
      else if (!direct_y) operands[0].store(at, count, buffers[0]);
    }
  });
}

#define RT_MAP_BLOCKS(C)                                                            \
  template void map_blocks(Block<C>, const void*, const std::array<View, 2>&);      \
  template void map_blocks(Block<C>, const void*, const std::array<View, 3>&);      \
  template void map_blocks(Block<C>, const void*, const std::array<View, 4>&);      \
  template void map_blocks(Block<C>, const void*, const std::array<View, 5>&);
RT_MAP_BLOCKS(float)
RT_MAP_BLOCKS(double)
RT_MAP_BLOCKS(int64_t)

RT_ISA_END
