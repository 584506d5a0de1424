#pragma once
#include <memory>
#include <vector>

#include "train/loop/step.h"

namespace ringtape {

// Steps of a training on a GPU as one graph: the third of three steps in a row that do the same work is recorded, and
// each later one is a copy of its images and labels, one of its numbers (learning rate, step, positions of random
// numbers), and one launch. What ranks send is not in the graph: it is cut there, and each launch sends between two
// parts, so that a rank need not know whether others repeat a step or run it. The bytes are those of the same kernels
// launched one by one. There is one graph at a time; steps on other shapes run as ever. Its memory is the graph's own,
// besides what tensors have elsewhere.
class StepGraph {
 public:
  // A whole step, up to the update of the weights.
  using Work = std::function<Step::Result(const Tensors& images, const Labels& labels)>;

  StepGraph(nn::Module& model, Optimizer& optimizer, const Placement& placement);
  ~StepGraph();

  // What work(images, labels) returns, at rate `lr`, for a part of `global`: from the graph if it fits. Tensors are the
  // graph's: the next step overwrites them.
  Step::Result run(const Tensors& images, const Labels& labels, double lr, const GlobalBatch& global, const Work& work);
  void forget();  // whatever was recorded: the next steps may do other work

 private:
  using Form = std::vector<int64_t>;  // equal for steps that do the same work; empty: such work cannot be recorded
  struct Recorded;
  struct HostState;

  Form form_of(const Tensors& images, const Labels& labels, const GlobalBatch& global) const;
  Step::Result in_place(const Tensors& images, const Labels& labels, const Work& work) const;
  Step::Result record(const Tensors& images, const Labels& labels, const Work& work);
  Step::Result repeat(const Tensors& images, const Labels& labels, double lr);
  bool fits(const Form& form) const;
  HostState host_state() const;
  void put_back(const HostState& before) const;
  Step::Result launch(const HostState& before) const;

  Optimizer& optimizer_;
  const Placement& placement_;
  Device device_;
  std::vector<nn::Module*> modules_;        // all of the model
  std::vector<Tensor*> buffers_, tensors_;  // of the model; the latter with parameters
  Form last_, refused_;
  int in_a_row_ = 0;  // steps of form last_
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace ringtape
