#pragma once
#include <memory>

#include "comm/algorithm.h"
#include "core/tensor.h"

namespace ringtape::comm {

// A collective that was asked for. Copies mean the same one.
class Work {
 public:
  // Begins it, and all before it, on the group's own thread, beside the caller.
  Work start() const;
  // Returns when it is done; what was not begun, the caller does itself. Throws the CommError of the group if it
  // failed. On a GPU it has been put on the device's stream already, and nobody waits.
  void wait() const;
  bool done() const;  // or failed
  // When the host did it; once it is done.
  struct Span {
    Clock::time_point begin{}, end{};
  };
  Span span() const;

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Work() = default;

 private:
  std::shared_ptr<State> state_;
};

// Ranks that work together. Calls are made by all of them, in the same order, from one thread at a time; each returns a
// Work:
//   group.all_reduce(y).wait();                    // now, on this thread
//   const Work work = group.all_reduce(y).start(); // while this thread goes on; then work.wait()
// One that is neither started nor waited for is done before the next that is, or before the group goes. Tensors are
// contiguous, of any dtype but b8 (which only moves), on the transport's device (a CPU's: on any of the host), and stay
// untouched until the Work is done; y and x share no memory but where comm/algorithm.h says. What does not fit throws
// ShapeError, DTypeError, DeviceError or UsageError before anything is sent. A group of one is a group. After a failure
// every call throws its cause as CommError.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::unique_ptr<Transport> transport);
  ~ProcessGroup();  // does what is left, or waits for its deadline

  int rank() const;
  int size() const;
  const Transport& transport() const;

  Work all_reduce(const Tensor& y, ReduceOp op = ReduceOp::sum);  // in place
  Work all_reduce(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);
  // x has size() times the elements of y.
  Work reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);
  Work all_gather(const Tensor& y, const Tensor& x);  // y has size() times the elements of x
  Work broadcast(const Tensor& y, int root);
  // y: undefined except on the root.
  Work reduce(const Tensor& y, const Tensor& x, int root, ReduceOp op = ReduceOp::sum);
  Work gather(const Tensor& y, const Tensor& x, int root);   // y: undefined except on the root
  Work scatter(const Tensor& y, const Tensor& x, int root);  // x: undefined except on the root
  Work all_to_all(const Tensor& y, const Tensor& x);
  Work barrier();

  // Zeros that other ranks can reach, so that collectives need no copy of them.
  Tensor allocate(const Shape& shape, DType dtype);

  // Whether sums are made in the order of the ranks, for the same bits with every
  // transport; off at first. The same on all ranks.
  void set_deterministic(bool on);

  // The ranks that give the same color become a group, in the order of key, then rank. A collective itself.
  std::unique_ptr<ProcessGroup> split(int color, int key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A group of one on the CPU, each thread's own: for who has no others. It lives as long as the thread.
ProcessGroup& alone();

}  // namespace ringtape::comm
