#include "kernels/cpu/elementwise.h"

#include "core/parallel.h"
#include "kernels/cpu/vector/wide.h"

RT_ISA_BEGIN

namespace {

constexpr size_t kMaxViews = 5;

// Elements that lie together, in the compute type, and back.
template <class T, class C> void convert(const T* from, int64_t n, C* to) {
  if constexpr (is_half_v<T>) widen(from, n, to);
  else if constexpr (is_half_v<C>) narrow(from, n, to);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(from[i]);
}

// Calls f(at, count) for blocks of n elements.
template <class F> void for_each_block(int64_t n, const F& f) {
  for (int64_t at = 0; at < n; at += kBlock) f(at, std::min(kBlock, n - at));
}

// Types of 16 bits are converted to and from float alone: another C takes a second step.
template <class C> bool by_float(DType dtype) {
  return !std::is_same_v<C, float> && (dtype == DType::f16 || dtype == DType::bf16);
}

// Calls f.operator()<T>() for the others, and for those if C is float.
template <class C, class F> void dispatch_to(DType dtype, const F& f) {
  dispatch(dtype, [&]<class T>() {
    if constexpr (!is_half_v<T> || std::is_same_v<C, float>) f.template operator()<T>();
  });
}

// Blocks of dense bf16 are converted in the order of lanes (wide.h): f does not see which element is where.
template <class C> bool in_order_of_lanes(const Operand* operands, size_t count) {
  if (kHalves<bf16> == 1 || !std::is_same_v<C, float> || operands[0].dtype != DType::bf16) return false;
  for (size_t k = 0; k < count; ++k)
    if (!(operands[k].dense && operands[k].dtype == DType::bf16) && !(k > 0 && operands[k].constant)) return false;
  return true;
}

// As Operand::load and store; n is a multiple of kWide.
template <class C> void load_lanes(const Operand& x, int64_t begin, int64_t n, C* buffer) {
  if constexpr (std::is_same_v<C, float>) {
    const bf16* const from = reinterpret_cast<const bf16*>(x.data) + begin;
    for (int64_t i = 0; i < n; i += kWide<bf16>) store_in_order<bf16>(buffer + i, load_wide(from + i, kWide<bf16>));
  }
}
template <class C> void store_lanes(const Operand& y, int64_t begin, int64_t n, const C* buffer) {
  if constexpr (std::is_same_v<C, float>) {
    bf16* const to = reinterpret_cast<bf16*>(y.data) + begin;
    for (int64_t i = 0; i < n; i += kWide<bf16>) store_wide(to + i, load_in_order<bf16>(buffer + i), kWide<bf16>);
  }
}

}  // namespace

template <class C> void Operand::gather(int64_t begin, int64_t n, C* buffer) const {
  if (by_float<C>(dtype))
    return for_each_block(n, [&](int64_t at, int64_t count) {
      float some[kBlock];
      gather(begin + at, count, some);
      convert(some, count, buffer + at);
    });
  dispatch_to<C>(dtype, [&]<class T>() {
    for_each_run(begin, n, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
      const T* const run = reinterpret_cast<const T*>(data) + offset;
      if (step == 1) return convert(run, count, buffer + at);
      if (step == 0) return void(std::fill_n(buffer + at, count, static_cast<C>(static_cast<compute_t<T>>(*run))));
      if constexpr (!is_half_v<T>)
        for (int64_t i = 0; i < count; ++i) buffer[at + i] = static_cast<C>(run[i * step]);
      else
        for_each_block(count, [&](int64_t i, int64_t some) {
          T together[kBlock];
          for (int64_t j = 0; j < some; ++j) together[j] = run[(i + j) * step];
          convert(together, some, buffer + at + i);
        });
    });
  });
}

template <class C> void Operand::store(int64_t begin, int64_t n, const C* buffer) const {
  if (by_float<C>(dtype))
    return for_each_block(n, [&](int64_t at, int64_t count) {
      float some[kBlock];
      convert(buffer + at, count, some);
      store(begin + at, count, some);
    });
  dispatch_to<C>(dtype, [&]<class T>() {
    for_each_run(begin, n, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
      T* const run = reinterpret_cast<T*>(data) + offset;
      if (step == 1) return convert(buffer + at, count, run);
      if constexpr (!is_half_v<T>)
        for (int64_t i = 0; i < count; ++i) run[i * step] = static_cast<T>(buffer[at + i]);
      else
        for_each_block(count, [&](int64_t i, int64_t some) {
          T together[kBlock];
          convert(buffer + at + i, some, together);
          for (int64_t j = 0; j < some; ++j) run[(i + j) * step] = together[j];
        });
    });
  });
}

template <size_t N> std::array<Operand, N> operands_of(const std::array<View, N>& views) {
  const Layout<N> layout = coalesce(views);
  std::array<Operand, N> out;
  for (size_t k = 0; k < N; ++k) {
    Operand& o = out[k];
    o.data = static_cast<char*>(views[k].data);
    o.dtype = views[k].dtype;
    o.dense = layout.dense(k);
    o.constant = layout.constant(k);
    o.rank = layout.rank;
    std::copy_n(layout.dims, o.rank, o.dims);
    std::copy_n(layout.strides[k], o.rank, o.strides);
  }
  return out;
}
template std::array<Operand, 1> operands_of(const std::array<View, 1>&);
template std::array<Operand, 2> operands_of(const std::array<View, 2>&);
template std::array<Operand, 3> operands_of(const std::array<View, 3>&);
template std::array<Operand, 4> operands_of(const std::array<View, 4>&);
template std::array<Operand, 5> operands_of(const std::array<View, 5>&);

namespace {

template <size_t... k> void put_operands(const View* const* views, Operand* to, std::index_sequence<k...>) {
  const auto operands = operands_of(std::array<View, sizeof...(k)>{*views[k]...});
  std::copy(operands.begin(), operands.end(), to);
}
void put_operands(std::initializer_list<const View*> views, Operand* to) {
  switch (views.size()) {
    case 2: return put_operands(views.begin(), to, std::make_index_sequence<2>());
    case 3: return put_operands(views.begin(), to, std::make_index_sequence<3>());
    case 4: return put_operands(views.begin(), to, std::make_index_sequence<4>());
    default: return put_operands(views.begin(), to, std::make_index_sequence<5>());
  }
}

}  // namespace

template <class C> void map_blocks(Block<C> block, const void* f, std::initializer_list<const View*> views) {
  const int64_t n = (*views.begin())->size();
  if (n == 0) return;
  const size_t operand_count = views.size();
  Operand operands[kMaxViews];
  put_operands(views, operands);
  const bool direct_y = operands[0].dense && operands[0].dtype == dtype_of<C>::value;
  bool direct = direct_y;  // nothing to convert or gather: one block
  for (size_t k = 1; k < operand_count; ++k)
    direct = direct && operands[k].dense && operands[k].dtype == dtype_of<C>::value;
  const bool wide = in_order_of_lanes<C>(operands, operand_count);

  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(kVectorBytes) C buffers[kMaxViews][kBlock];
    const C* x[kMaxViews - 1];
    const int64_t step = direct ? end - begin : kBlock;
    for (size_t k = 1; k < operand_count; ++k)
      if (operands[k].constant) x[k - 1] = operands[k].load(0, std::min(step, end - begin), buffers[k]);
    for (int64_t at = begin, count = 0; at < end; at += count) {
      count = std::min(step, end - at);
      const bool lanes = wide && count >= kWide<bf16>;
      if (lanes) count -= count % kWide<bf16>;
      for (size_t k = 1; k < operand_count; ++k) {
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

#define RT_COMPUTE_TYPE(C)                                        \
  template void Operand::gather(int64_t, int64_t, C*) const;      \
  template void Operand::store(int64_t, int64_t, const C*) const; \
  template void map_blocks(Block<C>, const void*, std::initializer_list<const View*>);
RT_COMPUTE_TYPE(float)
RT_COMPUTE_TYPE(double)
RT_COMPUTE_TYPE(int64_t)

RT_ISA_END
