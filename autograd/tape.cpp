#include "autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <queue>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/nan.h"
#include "autograd/partial_grad.h"
#include "autograd/trace.h"
#include "core/env.h"
#include "core/log.h"
#include "kernels/binary.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace ringtape {
namespace {

std::atomic<uint64_t> next_seq{0};
std::atomic<uint64_t> next_visit{0};
thread_local bool recording = true;
thread_local Node* running = nullptr;  // the node whose backward function is being called

NodePtr make_node(const char* name, const Shape& shape) {
  auto node = std::make_shared<Node>();
  node->name = name;
  node->shape = shape;
  node->seq = ++next_seq;
  return node;
}

Node& leaf_node(const Tensor& x, const char* function) {
  RT_CHECK_AS(AutogradError, x.node() && !x.node()->backward, function,
              " of a tensor that is not a leaf; make it one with leaf(x)");
  return *x.node();
}

// Calls f once on each node that `root` depends on.
template <class F> void for_each_node(Node* root, F&& f) {
  const uint64_t visit = ++next_visit;
  std::vector<Node*> stack{root};
  root->visited = visit;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    f(node);
    for (const NodePtr& input : node->inputs)
      if (input && input->visited != visit) {
        input->visited = visit;
        stack.push_back(input.get());
      }
  }
}

// Memory that is visible elsewhere is not written.
bool writable(const Tensor& x) { return x.storage().use_count() == 1 && x.contiguous(); }

// into += g. The first contribution is taken without a copy.
void accumulate(Tensor& into, Tensor g) {
  if (!into.defined()) {
    into = std::move(g);
    return;
  }
  Tensor sum = writable(into) ? into : empty_like(into);
  add_forward(sum, into, g);
  into = std::move(sum);
}

bool same_place(const Tensor& a, const Tensor& b) { return a.defined() && b.defined() && View(a).data == View(b).data; }

const Tensor& slot_of(Node& node) {
  if (!node.grad_slot.defined() && node.open_slot) node.open_slot();
  return node.grad_slot;
}

// Adds a leaf's complete contribution of this backward pass to its gradient.
void finish_leaf(Node& node) {
  Tensor g = std::move(node.pending_grad);
  node.pending_grad = {};
  if (!g.defined()) return;
  if (slot_of(node).defined()) {
    if (node.grad.defined()) add_forward(node.grad, node.grad, g);
    else if (!same_place(g, node.grad_slot)) copy(node.grad_slot, g);
    node.grad = node.grad_slot;
  } else if (node.grad.defined()) {
    add_forward(node.grad, node.grad, g);
  } else {
    // The contribution may be shared with another leaf (add passes dy on to both) or be a view of something larger.
    if (writable(g)) node.grad = std::move(g);
    else node.grad = empty_like(g), copy(node.grad, g);
  }
  if (node.hook) node.hook(node.grad);
}

struct Ready {
  NodePtr node;
  bool operator<(const Ready& other) const { return node->seq < other.node->seq; }
};

class Running {
 public:
  explicit Running(Node* node) : before_(running) { running = node; }
  ~Running() { running = before_; }

 private:
  Node* before_;
};

thread_local std::vector<std::function<void()>> at_end;

struct AtEnd {
  ~AtEnd() {
    for (const auto& f : std::exchange(at_end, {})) f();
  }
};

void check_gradient(const Node& node, const Tensor& dx, size_t input) {
  RT_CHECK_AS(AutogradError, dx.shape() == node.inputs[input]->shape, node.name, ": the gradient of input ", input,
              " has shape ", dx.shape(), ", the input ", node.inputs[input]->shape);
  if (env::find_nan()) find_nan(dx, concat("the gradient of input ", input, " of ", node.name));
}

}  // namespace

Node::~Node() {
  thread_local std::vector<NodePtr>* going = nullptr;  // of the outermost destructor
  std::vector<NodePtr> own = std::move(inputs);
  if (going) {
    std::move(own.begin(), own.end(), std::back_inserter(*going));
    return;
  }
  going = &own;
  while (!own.empty()) {
    const NodePtr last = std::move(own.back());  // its destructor adds its own inputs
    own.pop_back();
  }
  going = nullptr;
}

Tensor leaf(const Tensor& x) {
  RT_CHECK_AS(DTypeError, x.defined() && is_float(x.dtype()),
              "leaf: ", x.defined() ? concat("a ", x.dtype()) : "an undefined", " tensor has no gradient");
  Tensor out = x.detach();
  out.set_node(make_node("leaf", x.shape()));
  return out;
}

bool requires_grad(const Tensor& x) { return x.node() != nullptr; }
Tensor grad(const Tensor& x) { return leaf_node(x, "grad").grad; }
void zero_grad(const Tensor& x) { leaf_node(x, "zero_grad").grad = {}; }
void on_grad(const Tensor& x, std::function<void(const Tensor&)> hook) {
  leaf_node(x, "on_grad").hook = std::move(hook);
}

NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }
EnableGrad::EnableGrad() : before_(recording) { recording = true; }
EnableGrad::~EnableGrad() { recording = before_; }
bool grad_enabled() { return recording; }

Tensor record(const char* name, std::span<const Tensor> inputs, Tensor y, BackwardFn backward) {
  if (env::find_nan()) find_nan(y, concat("the result of ", name));
  if (detail::op_trace) [[unlikely]]
    detail::op_trace->add(name, inputs, y);
  const bool wanted = recording && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.node(); });
  if (!wanted) return y;
  NodePtr node = make_node(name, y.shape());
  node->inputs.reserve(inputs.size());
  for (const Tensor& x : inputs) node->inputs.push_back(x.node());
  node->backward = std::move(backward);
  y.set_node(std::move(node));
  return y;
}
Tensor record(const char* name, std::initializer_list<Tensor> inputs, Tensor y, BackwardFn backward) {
  return record(name, std::span<const Tensor>(inputs.begin(), inputs.size()), std::move(y), std::move(backward));
}

Tensor recomputed(Tensor y, std::function<Tensor()> again) {
  if (y.node()) y.node()->again = std::move(again);
  return y;
}

namespace {

void check_seed(const Tensor& loss, const Tensor& dloss) {
  RT_CHECK_AS(AutogradError, loss.node(), "backward from a tensor that depends on no leaf");
  RT_CHECK_AS(ShapeError, dloss.defined() || loss.size() == 1, "backward from a tensor of shape ", loss.shape(),
              " needs dloss, its gradient, of that shape");
  if (!dloss.defined()) return;
  RT_CHECK_AS(ShapeError, dloss.shape() == loss.shape(), "backward: dloss has shape ", dloss.shape(), ", the loss ",
              loss.shape());
  RT_CHECK_AS(DTypeError, dloss.dtype() == loss.dtype(), "backward: dloss is ", dloss.dtype(), ", the loss ",
              loss.dtype());
  RT_CHECK_AS(DeviceError, dloss.device() == loss.device(), "backward: dloss is on ", dloss.device(), ", the loss on ",
              loss.device());
}

// Counts how often each node that `root` depends on is used: its gradient has that many contributions.
void count_uses(Node* root) {
  for_each_node(root, [](Node* node) {
    node->pending_uses = 0;
    node->pending_grad = {};
  });
  for_each_node(root, [](Node* node) {
    for (const NodePtr& input : node->inputs)
      if (input) ++input->pending_uses;
  });
}

Tensor ones_like(const Tensor& x) {
  Tensor out = empty_like(x);
  fill(out, 1.0);
  return out;
}

// Of a node whose gradient is complete, the gradients of its inputs; none if it has no gradient.
Tensors input_gradients(Node& node) {
  const Tensor dy = std::move(node.pending_grad);
  node.pending_grad = {};
  if (!dy.defined()) return {};
  const Running scope(&node);
  Tensors dx = node.backward(dy);
  RT_CHECK_AS(AutogradError, dx.size() == node.inputs.size(), node.name, ": backward returns ", dx.size(),
              " gradients for ", node.inputs.size(), " inputs");
  return dx;
}

bool in_flat_buffer(const NodePtr& leaf) { return leaf->grad_slot.defined() || leaf->open_slot; }

void warn_of_forgotten(const std::vector<NodePtr>& leaves) {
  if (std::ranges::none_of(leaves, in_flat_buffer)) return;
  std::string shapes;
  for (const NodePtr& leaf : leaves)
    if (!in_flat_buffer(leaf) && leaf->grad.defined() && leaf->lonely_passes < 2 && ++leaf->lonely_passes == 2)
      shapes += concat(shapes.empty() ? "" : ", ", leaf->shape);
  if (shapes.empty()) return;
  log_warn("tensors of shape ", shapes,
           " get gradients, but no FlatParameters has them: they are neither trained nor saved. Pass them to the "
           "visitor in visit() of their module, or their module as a child, before the optimizer is made");
}

}  // namespace

void backward(Tensor loss, const Tensor& dloss) {
  check_seed(loss, dloss);
  const NoGrad no_grad;
  const Autocast as_they_are(DType::f32);
  const AtEnd finally;
  NodePtr root = loss.node();
  count_uses(root.get());
  root->pending_grad = dloss.defined() ? dloss : ones_like(loss);
  loss = {};
  std::priority_queue<Ready> ready;  // holds what nobody else may hold any more
  std::vector<NodePtr> leaves;
  if (!root->backward) return finish_leaf(*root);
  ready.push({std::move(root)});
  while (!ready.empty()) {
    const NodePtr node = ready.top().node;
    ready.pop();
    Tensors dx = input_gradients(*node);
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const NodePtr& input = node->inputs[i];
      if (!input) continue;
      if (i < dx.size() && dx[i].defined()) {
        check_gradient(*node, dx[i], i);
        accumulate(input->pending_grad, std::move(dx[i]));
      }
      if (--input->pending_uses > 0) continue;
      if (input->backward) {
        ready.push({input});
      } else {
        finish_leaf(*input);  // at once: work on complete gradients overlaps the rest of the pass
        leaves.push_back(input);
      }
    }
  }
  warn_of_forgotten(leaves);
}

std::vector<NodePtr> used_leaves(const Tensor& loss) {
  std::vector<NodePtr> leaves;
  if (!loss.node()) return leaves;
  if (!loss.node()->backward) return {loss.node()};
  for_each_node(loss.node().get(), [&](Node* node) {
    for (const NodePtr& input : node->inputs)
      if (input && !input->backward) leaves.push_back(input);
  });
  std::sort(leaves.begin(), leaves.end(), [](const NodePtr& a, const NodePtr& b) { return a->seq < b->seq; });
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  return leaves;
}

Tensor empty_grad(size_t input, const Shape& shape, DType dtype, Device device) {
  RT_CHECK(running, "empty_grad outside a backward function");
  const NodePtr& node = running->inputs[input];
  const bool empty = node && !node->backward && !node->grad.defined() && !node->pending_grad.defined();
  const bool sole = std::count(running->inputs.begin(), running->inputs.end(), node) == 1;
  if (!empty || !sole || shape != node->shape) return Tensor(shape, dtype, device);
  // Memory that a hook may soon take back is not opened for the first of several contributions.
  const Tensor& slot = node->pending_uses > 1 ? node->grad_slot : slot_of(*node);
  if (slot.defined()) return slot;
  return Tensor(shape, dtype, device);
}

Tensor partial_grad(size_t input) {
  RT_CHECK(running, "partial_grad outside a backward function");
  const NodePtr& node = running->inputs[input];
  if (!node || !node->pending_grad.defined() || !writable(node->pending_grad)) return {};
  return std::exchange(node->pending_grad, {});
}

bool needs_grad(size_t input) {
  RT_CHECK(running, "needs_grad outside a backward function");
  return running->inputs[input] != nullptr;
}

void at_end_of_backward(std::function<void()> f) { at_end.push_back(std::move(f)); }

const char* current_op() { return running ? running->name : ""; }

void print_graph(std::ostream& out, const Tensor& y) {
  if (!y.node()) {
    out << "no graph: the tensor depends on no leaf\n";
    return;
  }
  std::vector<Node*> nodes;
  for_each_node(y.node().get(), [&](Node* node) { nodes.push_back(node); });
  std::sort(nodes.begin(), nodes.end(), [](Node* a, Node* b) { return a->seq > b->seq; });
  for (const Node* node : nodes) {
    out << '#' << node->seq << ' ' << node->name;
    const char* separator = " <- ";
    for (const NodePtr& input : node->inputs) {
      out << separator << (input ? concat("#", input->seq) : "-");
      separator = ", ";
    }
    out << '\n';
  }
}

}  // namespace ringtape
