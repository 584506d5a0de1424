#pragma once
#include <memory>

#include "comm/algorithm.h"
#include "core/tensor.h"

namespace ringtape::comm {

// A requested collective. Copies refer to the same one.
class Work {
 public:
  // Begins it, and all earlier ones, on the group's own thread, while the caller continues.
  Work start() const;
  // Returns when it is done. The caller's thread carries out what was not begun. Throws the CommError of the group if
  // it failed. On a GPU the work is only ordered on the device's stream, and the host does not wait.
  void wait() const;
  bool done() const;  // or failed
  // When the host executed it; valid once it is done.
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

// Ranks that work together. All ranks make the same calls in the same order, from one thread at a time. Each call
// returns a Work:
//   group.all_reduce(y).wait();                    // now, on this thread
//   const Work work = group.all_reduce(y).start(); // while this thread continues; then work.wait()
// A Work that is neither started nor waited for is done before the next one that is, or before the group is destroyed.
// Tensors are contiguous, of any dtype (b8 only where elements are moved and not combined), on the transport's device
// (a CPU's: on any CPU device), and must not be changed until the Work is done. y and x share no memory except where
// comm/algorithm.h allows it. Wrong arguments throw ShapeError, DTypeError, DeviceError or UsageError before anything
// is sent. A group of one works too. After a failure every call throws its cause as CommError.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::unique_ptr<Transport> transport);
  ~ProcessGroup();  // finishes the remaining work, or waits until its deadline

  int rank() const;
  int size() const;
  const Transport& transport() const;

  Work all_reduce(const Tensor& y, ReduceOp op = ReduceOp::sum);  // in place
  Work all_reduce(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);
  // x has size() times the elements of y.
  Work reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op = ReduceOp::sum);
  Work all_gather(const Tensor& y, const Tensor& x);  // y has size() times the elements of x
  // Both with parts of any size, in place: rank r's part of `all` is [cuts[r], cuts[r + 1]). Cuts are the same on all
  // ranks and ascend from 0 to all.size(). After reduce_scatter the other parts are unspecified.
  using Cuts = std::shared_ptr<const std::vector<int64_t>>;
  Work reduce_scatter(const Tensor& all, const Cuts& cuts, ReduceOp op = ReduceOp::sum);
  // `label`: ranks with other labels make different calls, even if sizes are equal.
  Work all_gather(const Tensor& all, const Cuts& cuts, uint64_t label = 0);
  Work broadcast(const Tensor& y, int root);
  // y: undefined except on the root.
  Work reduce(const Tensor& y, const Tensor& x, int root, ReduceOp op = ReduceOp::sum);
  Work gather(const Tensor& y, const Tensor& x, int root);   // y: undefined except on the root
  Work scatter(const Tensor& y, const Tensor& x, int root);  // x: undefined except on the root
  Work all_to_all(const Tensor& y, const Tensor& x);
  Work barrier();

  // Zeros in memory that other ranks can access, so that collectives need no copy.
  Tensor allocate(const Shape& shape, DType dtype);

  // The same zeros on all ranks of the group, which use it one after another, with collectives between. All ranks call
  // it. Throws UsageError if the transport has no memory that ranks share.
  Tensor allocate_common(const Shape& shape, DType dtype);

  // Whether sums are made in the order of the ranks, which gives the same bits with every transport; initially off.
  // Must be the same on all ranks.
  void set_deterministic(bool on);

  // The ranks with the same color form a group, in the order of key, then rank. This is itself a collective.
  std::unique_ptr<ProcessGroup> split(int color, int key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A group of one on the CPU, for code without other ranks. Each thread has its own, which lives as long as the thread.
ProcessGroup& alone();

}  // namespace ringtape::comm
