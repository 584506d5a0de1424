#pragma once
#include <functional>
#include <ostream>

#include "core/tensor.h"

// The tape is implicit: each recorded operation is a Node with a growing sequence number and edges to the nodes of its
// inputs, owned by the tensors that came out of it. Largest number first is therefore reverse topological order, and
// a graph nobody holds any more is gone.
namespace ringtape {

using NodePtr = std::shared_ptr<Node>;

// Maps dL/dy to dL/dinput, one tensor per recorded input; an undefined tensor stands for zero. Its captures are the
// saved values: hold tensors in SavedTensor (autograd/saved.h), never bare.
using BackwardFn = std::function<Tensors(const Tensor& dy)>;

struct Node {
  const char* name = "leaf";
  uint64_t seq = 0;
  Shape shape;                  // of the result
  std::vector<NodePtr> inputs;  // null where an input needs no gradient
  BackwardFn backward;          // empty for a leaf

  // Leaves only.
  Tensor grad;                                  // what has accumulated; undefined if nothing has
  Tensor grad_slot;                             // where `grad` is to lie (a view of a flat buffer), or undefined
  std::function<void(const Tensor& grad)> hook; // called when backward has added the last contribution to `grad`

  // Scratch of a running backward().
  Tensor pending_grad;
  int pending_uses = 0;
  uint64_t visited = 0;

  ~Node();  // without recursion: a graph may be as deep as it likes
};

// A tensor that backward() computes a gradient for.
Tensor leaf(const Tensor& x);

bool requires_grad(const Tensor& x);            // whether it is in a recorded graph
Tensor grad(const Tensor& leaf);                // undefined before backward() reached it
void zero_grad(const Tensor& leaf);             // forgets the gradient; the next backward() writes instead of adding

// Calls `hook` each time a backward() has completed the gradient of `leaf`, at that moment, while the rest of the
// backward pass is still to come: data-parallel reduction starts there. Replaces an earlier hook; empty for none.
void on_grad(const Tensor& leaf, std::function<void(const Tensor& grad)> hook);

// The last line of every differentiable function: returns `y` as the result of `name` on `inputs`. Where no input needs
// a gradient, or inside NoGrad, y is returned as it is. `name` must be a literal.
Tensor record(const char* name, std::initializer_list<Tensor> inputs, Tensor y, BackwardFn backward);
Tensor record(const char* name, std::span<const Tensor> inputs, Tensor y, BackwardFn backward);

// Adds dL/dx to grad(x) of every leaf x that `loss` depends on. `dloss` is dL/dloss, 1 for a one-element loss if not
// given. The graph stays: a second call adds the same gradients again. Each contribution is added in an order that
// the graph alone decides, so the result is bitwise repeatable. Two passes over shared nodes must not overlap, neither in
// two threads nor inside a hook.
void backward(const Tensor& loss, const Tensor& dloss = {});

// The leaves that `loss` depends on; a parameter not among them gets no gradient from backward(loss).
std::vector<NodePtr> used_leaves(const Tensor& loss);

// While one lives, nothing is recorded on this thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
// While one lives, operations are recorded again, inside a NoGrad too.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};
bool grad_enabled();

// Inside a backward function: uninitialised memory for dL/dinput number `input`, of the given shape. For a leaf whose
// gradient lies in a flat buffer and has nothing in it yet that is its place there, which saves a pass over it.
Tensor empty_grad(size_t input, const Shape& shape, DType dtype, Device device);
// Inside a backward function: whether dL/dinput number `input` is wanted at all.
bool needs_grad(size_t input);
// Inside a backward function: calls f once the backward pass has ended, by an exception too.
void at_end_of_backward(std::function<void()> f);
// Inside a backward function: the operation's name.
const char* current_op();

// One line a node, newest first: number, name, the numbers of its inputs.
void print_graph(std::ostream& out, const Tensor& y);

}  // namespace ringtape
