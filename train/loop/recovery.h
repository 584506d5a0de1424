#pragma once
#include "train/loop/averaged_model.h"
#include "train/loop/epoch_meter.h"

namespace ringtape {

// What a process of a training with a membership takes from one set of ranks to the next.
struct Carried {
  TrainState state;
  int64_t saved_step = -1;  // of the newest checkpoint
  Tensors tensors;          // Step::replicated()
};

// What a training goes on from: a checkpoint, the state of another rank, or its own before ranks came or went.
class Recovery {
 public:
  Recovery(Training& parts, TrainState& at, EpochMeter& meter) : p_(parts), at_(at), meter_(meter) {}

  std::vector<TensorFile> files() const;
  void checkpoint(const std::function<void()>& save);  // unless the newest is of this step; a collective
  void restore(const TrainState& state);
  std::string share(int source, const std::string& text);  // Trainer::share_state()
  int64_t saved_step() const { return saved_step_; }       // of the newest checkpoint

  void
  begin_step();  // with a membership: what the step changes apart from weights and optimizer is kept until end_step()
  void end_step() { in_step_ = false; }
  Carried carry();  // the state after the last whole step
  void take(const Carried& carried);

  // With --ema, the model has the averaged weights while the returned object lives. All ranks get the same buffers.
  std::unique_ptr<AveragedModel> weights_to_judge();
  // With --export best, replaces the last weights by those of the best validation.
  void take_best(const std::function<void(int64_t step)>& load);

 private:
  RandomState own_random(const TrainState& state) const;
  int64_t steps() const { return p_.step->count(); }

  Training& p_;
  TrainState& at_;
  EpochMeter& meter_;
  int64_t saved_step_ = -1;
  int64_t average_known_ = -1;  // of the step with Step::average_statistics()
  bool in_step_ = false;
  Tensors buffers_;  // before the step, as random_
  RandomState random_;
};

}  // namespace ringtape
