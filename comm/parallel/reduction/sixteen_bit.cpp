#include <utility>

#include "comm/parallel/reduction/reductions.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

// Gradients are rounded to a 16-bit format, summed in it, and converted back: half the bytes of f32. In f16, values
// above its maximum of 65504 become infinite on all ranks, and the loss scale skips such a step; values below 6e-8
// become 0.
class SixteenBit : public Reduction {
 public:
  SixteenBit(ProcessGroup& group, Tensor all, DType dtype)
      : Reduction(group), all_(std::move(all)), rounded_(group.allocate(all_.shape(), dtype)) {}
  void finish() override {
    wait();
    copy(all_, rounded_);
  }

 private:
  void begin() override {
    copy(rounded_, all_);
    send(rounded_);
  }

  const Tensor all_, rounded_;
};

}  // namespace

template <DType dtype>
std::unique_ptr<Reduction> make_sixteen_bit(ProcessGroup& group, Gradients gradients, const Settings&) {
  return std::make_unique<SixteenBit>(group, gradients.all, dtype);
}
template std::unique_ptr<Reduction> make_sixteen_bit<DType::bf16>(ProcessGroup&, Gradients, const Settings&);
template std::unique_ptr<Reduction> make_sixteen_bit<DType::f16>(ProcessGroup&, Gradients, const Settings&);

}  // namespace ringtape::comm
