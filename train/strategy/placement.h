#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "comm/parallel/sharded_buffers.h"
#include "train/optim/flat_parameters.h"
#include "train/strategy/parallel.h"

namespace ringtape {

struct PlacementInputs {
  nn::Module& model;          // its parameters are moved into flat buffers
  comm::ProcessGroup& group;  // of the training
  const ParallelOptions& parallel;
  DType precision;         // in which operations compute
  bool undivided = false;  // whether the optimizer needs whole parameters

  template <class Options> const Options& own() const { return parallel.strategy.chosen().as<Options>(); }
};

// Where the numbers of a training are: which rank holds weights, gradients and the optimizer's state, and what ranks
// send in a step. All ranks make the same calls. Of this class itself: each rank has all numbers, and gradients are
// summed while backward() computes others; a process alone sends nothing.
class Placement {
 public:
  // `common`: one memory of all ranks for the values.
  explicit Placement(const PlacementInputs& in, bool common = false);
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  FlatParameters& parameters() { return parameters_; }
  const FlatParameters& parameters() const { return parameters_; }
  // A group of its own: collectives inside the model need not wait for gradients.
  comm::ProcessGroup& group() const { return *group_; }
  const comm::Reducer* reducer() const { return reducer_.get(); }  // null: this process has all samples
  virtual const comm::Shards* shards() const { return nullptr; }   // null: each rank updates all

  // A step, in this order. Weights may be used while the result of begin_round() lives.
  virtual std::unique_ptr<FlatParameters::Converted> begin_round();
  // If some ranks have no samples of a step: those that have some use weights, the others give theirs until end().
  struct Uneven {
    virtual ~Uneven() = default;
    virtual void end() = 0;
  };
  virtual std::unique_ptr<Uneven> uneven(int64_t /*samples*/, int64_t /*of_all*/) { return nullptr; }
  // Before the last backward() of the step; before others, with fixed shares; after the last one: gradients are sums.
  void arm(const Tensor& loss, const comm::Reducer::Step& part) const;
  void keep(const comm::Reducer::Step& part) const { reducer_->keep(part); }
  void finish() const;
  // Of all cells (FlatParameters::cells), if wanted; `values` only if this rank has not all of them to itself.
  struct Squares {
    Tensor gradients, values;
  };
  virtual Squares squares(bool of_gradients, bool of_values) const;
  virtual void update(const std::function<void()>& f);  // f changes own values, and what follows them

  // Whether steps that do the same work can be recorded as a graph (train/loop/step_graph.h): those that send gradients
  // alone.
  bool repeats() const { return sends_gradients_alone_ && (!reducer_ || reducer_->repeats()); }
  void give_up() const;  // instead of finish(): the recording of a step was given up

  // f writes weights, where they are: all of them, or those of the rank that writes for others.
  virtual void write_weights(const std::function<void()>& f) const { f(); }
  virtual Tensor value_squares() const { return parameters_.value_squares(); }  // of the values of all ranks

  std::vector<FileTensor> all_weights() const;  // if own values are not defined: the model's, in the order of files
  // For files. hold(): the buffers (own_size()) of an optimizer and an average, once they are made. The tensor of
  // parameter p in one of these, or in own values; that of a buffer of the model of which ranks hold parts. Rank 0 uses
  // them in f.
  virtual void hold(const std::vector<Tensor>& /*buffers*/) {}
  virtual FileTensor file(const std::string& name, const FlatParameters::Parameter& p, const Tensor& buffer) const;
  virtual std::optional<FileTensor> divided(const nn::Named& /*buffer*/) const { return std::nullopt; }
  virtual void on_rank_zero(const std::function<void()>& f) const;

  // Of these and the weights, what each rank has, equal on all.
  virtual std::vector<Tensor> replicated(std::vector<Tensor> buffers) const;
  virtual int64_t weight_bytes() const;  // of this rank, with a teacher's
  virtual comm::Reducer::Totals traffic() const;
  virtual comm::ShardedBuffers* gathered_weights() const { return nullptr; }
  virtual const class ShardedTeacher* sharded_teacher() const { return nullptr; }

  // With fixed shares (ParallelOptions::shares), else 0. Where each of the model's buffers is summed over them.
  int64_t shares() const { return shares_; }
  std::vector<Tensor> summed(const std::vector<Tensor>& buffers) const;

 protected:
  int64_t front(int64_t parameters) const;
  int64_t value_bytes() const { return parameters_.size() * int64_t(size_of(parameters_.dtype())); }

  nn::Module& model_;
  const std::unique_ptr<comm::ProcessGroup> group_;
  const DType precision_;

 private:
  Tensor gradient_memory(Sharded sharded, int64_t size, int64_t parameters, DType dtype, Device device);
  Tensor value_memory(Sharded sharded, bool common, int64_t size, DType dtype, Device device) const;
  std::unique_ptr<comm::Reducer> make_reducer(const PlacementInputs& in) const;

  const int64_t shares_;
  const bool sends_gradients_alone_;
  Tensor memory_;  // gradients, after the reducer's control words

 protected:
  FlatParameters parameters_;
  const std::unique_ptr<comm::Reducer> reducer_;
};

// That of the strategy.
std::unique_ptr<Placement> make_placement(const PlacementInputs& in);

}  // namespace ringtape
