#include "core/readback.h"

#include "core/runtime.h"

namespace ringtape {

Readback::Readback(const Tensor& x) {
  RT_CHECK(x.contiguous(), "a readback of strides ", x.strides());
  if (x.device().type == DeviceType::cpu) {
    host_ = x.copy_to(Device{});
  } else {
    host_ = Tensor(x.shape(), x.dtype());
    pending_ = runtime(x.device()).read(View(x).data, size_t(x.size()) * size_of(x.dtype()), x.device().index);
  }
}

Tensor Readback::get() {
  if (pending_) {
    pending_->finish(View(host_).data);
    pending_.reset();
  }
  return host_;
}

}  // namespace ringtape
