#pragma once
#include <memory>
#include <vector>

#include "nn/ssl/teacher_weights.h"
#include "train/optim/flat_parameters.h"

namespace ringtape {

// A teacher's weights, of which each rank holds those that follow its own ones of the student: to follow needs no
// messages. Its tensors become windows of buffer(), which have memory while the teacher's forward pass uses them.
class ShardedTeacher {
 public:
  // `students`: what hold_own() with `shards` has made of the student; rank 0's teacher counts. `gathering`: as the
  // student's; a teacher is gathered in its own dtype. A collective. All arguments must outlive this, and this all use
  // of the tensors.
  ShardedTeacher(nn::TeacherWeights& weights, const FlatParameters& student, const comm::Shards& shards,
                 comm::ShardedBuffers& students, comm::ProcessGroup& group, const Gathering& gathering);
  ~ShardedTeacher();
  ShardedTeacher(const ShardedTeacher&) = delete;
  ShardedTeacher& operator=(const ShardedTeacher&) = delete;

  const comm::Shards& shards() const { return *shards_; }  // elements have the numbers of those that they follow
  const Tensor& own() const { return own_; }               // (shards().own_size())
  comm::ShardedBuffers& buffer() const { return *buffer_; }
  // The parameter that a tensor of the module follows; null: it is none of the teacher's weights.
  const FlatParameters::Parameter* followed_by(const Tensor* tensor) const;

  // While it lives, this rank has all weights, so that it may use them alone: for a step in which others have no
  // images. All ranks create it together.
  class Whole {
   public:
    explicit Whole(const ShardedTeacher& teacher);
    ~Whole() { teacher_.hand_out(); }
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    const ShardedTeacher& teacher_;
  };

 private:
  struct Weight {
    Tensor* tensor;
    const FlatParameters::Parameter* followed;
  };
  void hand_out() const;  // the windows
  void follow(double momentum) const;

  nn::TeacherWeights& weights_;
  const FlatParameters& student_;
  comm::ShardedBuffers& students_;
  std::vector<Weight> held_;  // in the order of the student's
  std::unique_ptr<comm::Shards> shards_;
  Tensor own_;
  std::unique_ptr<comm::ShardedBuffers> buffer_;
};

}  // namespace ringtape
