#pragma once
#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/tensor.h"

// Tensors of other frameworks and back, without a copy, through DLPack (https://dmlc.github.io/dlpack), for code that
// has its header (nothing of ringtape includes this). With Python, the pointer is what a capsule "dltensor" holds.
namespace ringtape {

namespace detail {

struct DlpackType {
  DType dtype;
  uint8_t code, bits;
};
inline constexpr uint8_t kDlpackBool = 6;  // kDLBool of later versions of the header
inline constexpr DlpackType kDlpackTypes[] = {
    {DType::b8, kDlpackBool, 8}, {DType::u8, kDLUInt, 8},      {DType::i32, kDLInt, 32},   {DType::i64, kDLInt, 64},
    {DType::f16, kDLFloat, 16},  {DType::bf16, kDLBfloat, 16}, {DType::f32, kDLFloat, 32}, {DType::f64, kDLFloat, 64},
};

// A tensor that is lent, and what describes it.
struct DlpackLoan {
  DLManagedTensor managed{};
  Tensor x;
  Shape shape, strides;
};

// Gives back what was given, once it is set.
struct DlpackOwner {
  DLManagedTensor* given;
  Device device;
  ~DlpackOwner() {
    if (!given || !given->deleter) return;
    try {
      if (device.type == DeviceType::cuda) synchronize(device);  // its kernels may still use it
    } catch (const Error&) {                                     // the device is lost, and with it the memory
    }
    given->deleter(given);
  }
};

}  // namespace detail

// The elements of x for another framework, which calls the deleter when it needs them no more; outside the graph, and
// as they may be written, backward() does not notice. Waits until a GPU has computed them; the deleter must be called
// behind the other framework's last use there. Throws UsageError if x is undefined.
inline DLManagedTensor* to_dlpack(const Tensor& x) {
  RT_CHECK_AS(UsageError, x.defined(), "to_dlpack: the tensor is undefined");
  synchronize(x.device());
  auto loan = std::make_unique<detail::DlpackLoan>(detail::DlpackLoan{{}, x.detach(), x.shape(), x.strides()});
  DLTensor& t = loan->managed.dl_tensor;
  t.data = View(x).data;
  t.device = x.device().type == DeviceType::cpu ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, x.device().index};
  t.ndim = x.rank();
  for (const detail::DlpackType& type : detail::kDlpackTypes)
    if (type.dtype == x.dtype()) t.dtype = {type.code, type.bits, 1};
  t.shape = &loan->shape[0];
  t.strides = &loan->strides[0];
  loan->managed.manager_ctx = loan.get();
  loan->managed.deleter = [](DLManagedTensor* m) { delete static_cast<detail::DlpackLoan*>(m->manager_ctx); };
  return &loan.release()->managed;
}

// A tensor of the elements of another framework's tensor, on a CPU (cpu:0) or GPU, whose elements have been computed.
// It calls the deleter when its storage is no longer needed, on a GPU behind all work that is queued there. After an
// exception the caller still owns `given`: UsageError (null), DTypeError, ShapeError (over 8 axes, a negative stride),
// DeviceError or std::bad_alloc.
inline Tensor from_dlpack(DLManagedTensor* given) {
  RT_CHECK_AS(UsageError, given, "from_dlpack: there is no tensor");
  const DLTensor& t = given->dl_tensor;
  const detail::DlpackType* type = nullptr;
  for (const detail::DlpackType& known : detail::kDlpackTypes)
    if (known.code == t.dtype.code && known.bits == t.dtype.bits && t.dtype.lanes == 1) type = &known;
  RT_CHECK_AS(DTypeError, type, "from_dlpack: a type of code ", int(t.dtype.code), ", ", int(t.dtype.bits),
              " bits and ", t.dtype.lanes,
              " lanes; expected bool, uint8, int32, int64, float16, bfloat16, float32 or float64");
  RT_CHECK_AS(DeviceError, t.device.device_type == kDLCPU || t.device.device_type == kDLCUDA,
              "from_dlpack: a device of type ", int(t.device.device_type), "; expected a CPU (1) or a GPU of CUDA (2)");
  RT_CHECK_AS(ShapeError, t.ndim >= 0 && t.ndim <= kMaxRank, "from_dlpack: ", t.ndim, " axes; at most ", kMaxRank,
              " are possible");
  Device device;
  if (t.device.device_type == kDLCUDA) device = {DeviceType::cuda, t.device.device_id};
  memory_stats(device);  // throws if it does not exist
  const std::span<const int64_t> dims(t.shape, size_t(t.ndim));
  for (const int64_t dim : dims) RT_CHECK_AS(ShapeError, dim >= 0, "from_dlpack: an axis of length ", dim);
  const Shape shape(dims), dense = contiguous_strides(shape);
  Shape strides = t.strides ? Shape(std::span<const int64_t>(t.strides, size_t(t.ndim))) : dense;
  int64_t reach = shape.size() > 0;  // elements, from the first to the last
  for (int i = 0; i < t.ndim; ++i) {
    if (shape[i] <= 1) strides[i] = dense[i];  // of no meaning, may be anything
    RT_CHECK_AS(ShapeError, strides[i] >= 0, "from_dlpack: axis ", i, " goes backwards, its stride is ", strides[i],
                "; copy the tensor first");
    if (reach > 0) reach += (shape[i] - 1) * strides[i];
  }
  const auto owned = std::make_shared<detail::DlpackOwner>(detail::DlpackOwner{nullptr, device});
  const std::shared_ptr<void> memory(owned, static_cast<char*>(t.data) + (reach > 0 ? t.byte_offset : 0));
  const auto storage = std::make_shared<Storage>(memory, size_t(reach) * size_of(type->dtype), device);
  const Tensor out = Tensor(storage, {reach}, type->dtype).window(shape, strides);
  owned->given = given;
  return out;
}

}  // namespace ringtape
