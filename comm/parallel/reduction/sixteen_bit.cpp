#include <utility>

#include "comm/parallel/reduction/reductions.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

// Gradients are rounded to a 16-bit format, summed in it, and converted back: half the bytes of f32. In f16, values
// above its maximum of 65504 become infinite on all ranks, and the loss scale skips such a step; it also lifts
// small gradients, since values below 6e-8 become 0.
class SixteenBit : public Reduction {
 public:
  SixteenBit(ProcessGroup& group, Gradients gradients, DType dtype)
      : Reduction(group), all_(std::move(gradients.all)), cuts_(std::move(gradients.cuts)),
        rounded_(group.allocate(all_.shape(), dtype)),
        summed_(cuts_ ? Part{(*cuts_)[size_t(group.rank())], (*cuts_)[size_t(group.rank()) + 1]}
                      : Part{0, all_.size()}) {}
  void finish() override {
    wait();
    copy(all_.window({summed_.size()}, {1}, summed_.begin), rounded_.window({summed_.size()}, {1}, summed_.begin));
  }

 private:
  void begin() override {
    copy(rounded_, all_);
    send(rounded_, cuts_);
  }

  const Tensor all_;
  const ProcessGroup::Cuts cuts_;
  const Tensor rounded_;
  const Part summed_;
};

}  // namespace

template <DType dtype>
std::unique_ptr<Reduction> make_sixteen_bit(ProcessGroup& group, Gradients gradients, const Settings&) {
  return std::make_unique<SixteenBit>(group, std::move(gradients), dtype);
}
template std::unique_ptr<Reduction> make_sixteen_bit<DType::bf16>(ProcessGroup&, Gradients, const Settings&);
template std::unique_ptr<Reduction> make_sixteen_bit<DType::f16>(ProcessGroup&, Gradients, const Settings&);

}  // namespace ringtape::comm
