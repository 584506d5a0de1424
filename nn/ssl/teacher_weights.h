#pragma once
#include <functional>
#include <vector>

#include "nn/module.h"

namespace ringtape::nn {

// The weights of a teacher: buffers of a module, each a moving average of one of its parameters.
class TeacherWeights {
 public:
  struct Pair {
    Tensor *own, *student;  // of the same shape
  };
  explicit TeacherWeights(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {}  // of modules that outlive this

  const std::vector<Pair>& pairs() const { return pairs_; }
  int64_t size() const;  // elements

  // own = momentum own + (1 - momentum) student, elementwise; in one pass if they are contiguous in memory.
  void follow(double momentum) const;
  // From now on follow() calls `instead`, since no rank has all weights; empty: as before.
  using Follow = std::function<void(double momentum)>;
  void set_follow(Follow instead) { instead_ = std::move(instead); }

 private:
  std::vector<Pair> pairs_;
  Follow instead_;
};

TeacherWeights* teacher_of(Module& module);  // the first that it visits; null: it has none
int64_t count_teacher(Module& module);       // elements of teacher_of(module)

}  // namespace ringtape::nn
