#include <utility>

#include "comm/parallel/reduction/reductions.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

// Rounded to a 16-bit format, summed in it, and back: half the bytes of f32. What f16 cannot hold
// (65504 is its largest) becomes infinite, stays so on all ranks, and is left to the loss scale,
// which leaves such a step out; below 6e-8 it is 0.
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
