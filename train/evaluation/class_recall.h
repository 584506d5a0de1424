#pragma once
#include <vector>

#include "core/readback.h"

namespace ringtape {

namespace comm {
class ProcessGroup;
}

// The share of each class's images that is recognised, over batches. Values are read from the device one add() late.
class ClassRecall {
 public:
  explicit ClassRecall(int64_t classes) : counts_(size_t(2 * classes)) {}
  void add(const Tensor& ranks, const Tensor& labels);  // ranks_of(logits, labels), labels (B) i64

  struct Summary {
    double mean;  // of all classes that have images: scikit-learn's balanced_accuracy_score; NaN: none has
    bool uneven;  // whether one of these has more than twice the images of another
  };
  Summary of_all(comm::ProcessGroup& group);  // over the images of all ranks; a collective

 private:
  void read();

  Readback pending_ranks_, pending_labels_;
  std::vector<double> counts_;  // images of each class, then those of them that are recognised
};

}  // namespace ringtape
