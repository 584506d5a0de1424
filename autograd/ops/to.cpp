#include "autograd/ops/common.h"

namespace ringtape {

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const Tensor y = contiguous(x).copy_to(device);
  if (!is_float(x.dtype())) return y;
  return record("to", {x}, y, [own = x.device()](const Tensor& dy) -> Tensors { return {to(dy, own)}; });
}

static const RegisterOp register_to{{
    .name = "to",
    .samples = {{"there_and_back",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return to(to(t[0], Device{DeviceType::cpu, 1}), t[0].device());
                 }},
                {"empty",
                 {{{0, 5}}},
                 [](const Tensors& t) {
                   return to(to(t[0], Device{DeviceType::cpu, 1}), t[0].device());
                 }},
                {"same", {{{3, 5}}}, [](const Tensors& t) { return to(t[0], t[0].device()); }}},
    .workloads = {{"cpu1_4096x4096",
                   {{{4096, 4096}}},
                   [](const Tensors& t) {
                     return to(t[0], Device{DeviceType::cpu, 1});
                   }}},
}};

}  // namespace ringtape
