#include <utility>

#include "comm/parallel/reduction/reductions.h"

namespace ringtape::comm {

namespace {

// The plain sum, in place.
class Sum : public Reduction {
 public:
  Sum(ProcessGroup& group, Gradients gradients)
      : Reduction(group), all_(std::move(gradients.all)), cuts_(std::move(gradients.cuts)) {}
  void finish() override { wait(); }

 private:
  void begin() override { send(all_, cuts_); }

  const Tensor all_;
  const ProcessGroup::Cuts cuts_;
};

}  // namespace

std::unique_ptr<Reduction> make_sum(ProcessGroup& group, Gradients gradients, const Settings&) {
  return std::make_unique<Sum>(group, std::move(gradients));
}

}  // namespace ringtape::comm
