#pragma once
#include <functional>
#include <ostream>

#include "core/tensor.h"

// The tape is implicit: each recorded operation is a Node with a growing sequence number and edges to the nodes of its
// inputs, owned by its result tensors. So descending sequence numbers are a reverse topological order, and a graph that
// nobody holds any more is freed.
namespace ringtape {

using NodePtr = std::shared_ptr<Node>;

// Maps dL/dy to dL/dinput, one tensor per recorded input; an undefined tensor means zero. Its captures are the saved
// values: wrap all captured tensors in SavedTensor (autograd/saved.h).
using BackwardFn = std::function<Tensors(const Tensor& dy)>;

struct Node {
  const char* name = "leaf";
  uint64_t seq = 0;
  Shape shape;                    // of the result
  std::vector<NodePtr> inputs;    // null for inputs without gradient
  BackwardFn backward;            // empty for a leaf
  std::function<Tensor()> again;  // see recomputed()

  // Leaves only.
  Tensor grad;                                   // the accumulated gradient; undefined if none
  Tensor grad_slot;                              // memory for `grad` (a view of a flat buffer), or undefined
  std::function<void()> open_slot;               // defines grad_slot before it is needed; empty: it stays as it is
  std::function<Tensor(DType)> converted;        // its values in another dtype, or undefined; empty: cast() makes them
  std::function<void(const Tensor& grad)> hook;  // called when backward has added the last contribution to `grad`
  int lonely_passes = 0;                         // see backward(); at most 2

  // Temporary state of a running backward().
  Tensor pending_grad;
  int pending_uses = 0;
  uint64_t visited = 0;

  ~Node();  // without recursion: a graph may have any depth
};

// A tensor for which backward() computes a gradient.
Tensor leaf(const Tensor& x);

bool requires_grad(const Tensor& x);  // whether it is in a recorded graph
Tensor grad(const Tensor& leaf);      // undefined until backward() has reached it
void zero_grad(const Tensor& leaf);   // drops the gradient; the next backward() writes instead of adding

// Calls `hook` each time a backward() has completed the gradient of `leaf`, before the rest of the backward pass runs:
// data-parallel reduction starts there. Replaces an earlier hook; an empty one removes it.
void on_grad(const Tensor& leaf, std::function<void(const Tensor& grad)> hook);

// The last line of every differentiable function: returns `y` as the result of `name` on `inputs`. If no input needs a
// gradient, or inside NoGrad, returns y unchanged. `name` must be a literal.
Tensor record(const char* name, std::initializer_list<Tensor> inputs, Tensor y, BackwardFn backward);
Tensor record(const char* name, std::span<const Tensor> inputs, Tensor y, BackwardFn backward);

// Returns y, a result of record(), of which backward functions need not keep the value: `again` computes it from what
// the operation itself keeps (autograd/saved.h). For what costs little: activations, normalisation, views.
Tensor recomputed(Tensor y, std::function<Tensor()> again);

// Adds dL/dx to grad(x) of every leaf x that `loss` depends on. `dloss` is dL/dloss, by default 1 for a one-element
// loss. What nobody else holds of the graph is freed as soon as it has been used: backward(std::move(loss)) needs less
// memory. If the caller keeps `loss`, all is kept, and a second call adds the same gradients again. The order of
// additions depends only on the graph, so that results are bitwise reproducible. Two passes over shared nodes must not
// overlap, neither in two threads nor inside a hook.
//
// Warns of a leaf that has its second gradient beside leaves whose gradients are in flat buffers (FlatParameters), and
// is in none itself: a parameter that a module's visit() has left out, which is neither trained nor saved. An input
// that is a leaf of one pass alone is none.
void backward(Tensor loss, const Tensor& dloss = {});

// The leaves that `loss` depends on; a parameter not among them gets no gradient from backward(loss).
std::vector<NodePtr> used_leaves(const Tensor& loss);

// While it lives, nothing is recorded on this thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
// While it lives, operations are recorded again, even inside a NoGrad.
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

// Inside a backward function: uninitialised memory for dL/dinput number `input`, of the given shape. For a leaf with an
// empty gradient in a flat buffer this is its memory there, which saves a copy.
Tensor empty_grad(size_t input, const Shape& shape, DType dtype, Device device);
// Inside a backward function: whether dL/dinput number `input` is needed.
bool needs_grad(size_t input);
// Inside a backward function: calls f once the backward pass has ended, even by an exception.
void at_end_of_backward(std::function<void()> f);
// Inside a backward function: the operation's name.
const char* current_op();

// Prints one line per node, newest first: number, name, the numbers of its inputs.
void print_graph(std::ostream& out, const Tensor& y);

}  // namespace ringtape
