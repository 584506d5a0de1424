#include "kernels/cpu/elementwise.h"

#include "core/parallel.h"

RT_ISA_BEGIN

template <class C, size_t N>
void map_blocks(Block<C> block, const void* f, const std::array<View, N>& views) {
  const int64_t n = views[0].size();
  if (n == 0) return;
  const auto operands = operands_of(views);
  const bool direct_y = operands[0].dense && views[0].dtype == dtype_of<C>::value;
  bool direct = direct_y;  // nothing to convert or gather: one block
  for (const Operand& o : operands) direct = direct && o.dense && o.dtype == dtype_of<C>::value;

  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    C buffers[N][kBlock];
    const C* x[N - 1];
    const int64_t step = direct ? end - begin : kBlock;
    for (size_t k = 1; k < N; ++k)
      if (operands[k].constant) x[k - 1] = operands[k].load(0, std::min(step, end - begin), buffers[k]);
    for (int64_t at = begin; at < end; at += step) {
      const int64_t count = std::min(step, end - at);
      for (size_t k = 1; k < N; ++k)
        if (!operands[k].constant) x[k - 1] = operands[k].load(at, count, buffers[k]);
      C* const y = direct_y ? reinterpret_cast<C*>(operands[0].data) + at : buffers[0];
      block(f, y, x, count);
      if (!direct_y) operands[0].store(at, count, buffers[0]);
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
