#pragma once
#include <memory>

#include "comm/algorithm.h"
#include "core/tensor.h"

namespace ringtape::comm {

// A collective that was started. Copies mean the same one.
class Work {
 public:
  // Returns when it is done; throws the CommError of the group if it failed. On a GPU: the current stream waits, the caller does not.
  void wait();
  bool done() const;  // or failed

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Work() = default;

 private:
  std::shared_ptr<State> state_;
};

// Ranks that work together. Calls are made by all of them, in the same order; each starts and returns a Work. Tensors are contiguous, of
// any dtype but b8 (which only moves), on the transport's device, and stay untouched until the Work is done. A group of one is a group.
// After a failure every call throws its cause.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::unique_ptr<Transport> transport);
  ~ProcessGroup();  // waits for what was started, or for its deadline

  int rank() const;
  int size() const;
  const Transport& transport() const;

  Work all_reduce(const Tensor& y, ReduceOp op = ReduceOp::sum);  // in place
  Work all_reduce(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);
  Work reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);  // x has size() times the elements of y
  Work all_gather(const Tensor& y, const Tensor& x);                                   // y has size() times the elements of x
  Work broadcast(const Tensor& y, int root);
  Work reduce(const Tensor& y, const Tensor& x, int root, ReduceOp op = ReduceOp::sum);  // y: undefined except on the root
  Work gather(const Tensor& y, const Tensor& x, int root);                               // y: undefined except on the root
  Work scatter(const Tensor& y, const Tensor& x, int root);                              // x: undefined except on the root
  Work all_to_all(const Tensor& y, const Tensor& x);
  Work barrier();

  // Zeros that other ranks can reach, so that collectives need no copy of them.
  Tensor allocate(const Shape& shape, DType dtype);

  // The ranks that give the same color become a group, in the order of key, then rank. A collective itself.
  std::unique_ptr<ProcessGroup> split(int color, int key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringtape::comm
