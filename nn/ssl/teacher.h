#pragma once
#include "nn/ssl/method.h"
#include "nn/ssl/teacher_weights.h"

namespace ringtape::nn {

struct TeacherOptions {
  double momentum = 0.99;  // fraction of the teacher's weights that remains after a step
  double final_momentum =
      -1;  // final value of a cosine schedule (Grill et al., "Bootstrap your own latent", 2020); negative: constant
};
void visit(Fields& f, TeacherOptions& o);

// A second encoder with the same architecture, whose weights are a moving average of the first encoder's: the teacher
// of moco and byol. It is not trained, normalises by its own batches and has its own running statistics.
class Teacher {
 public:
  // Starts with the weights of the student, whose modules outlive this, as what else follows it does.
  Teacher(const Encoder& student, Encoder own, const TeacherOptions& options,
          std::vector<TeacherWeights::Pair> also = {});

  Tensor operator()(const Tensor& x) const;  // no gradient
  double momentum_at(const Moment& moment) const;
  // weights = m weights + (1 - m) student's weights, for parameters only.
  void follow(const Moment& moment) const;
  void visit(Visitor& v);  // as buffers

 private:
  Encoder own_;
  TeacherOptions options_;
  TeacherWeights weights_;
};

}  // namespace ringtape::nn
