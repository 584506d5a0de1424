#pragma once
#include <vector>

#include "comm/parallel/shards.h"
#include "train/optim/flat_parameters.h"

namespace ringtape {

// Lets rank 0 read and write, some elements at a time, flat buffers whose elements are held by the ranks that own them,
// while the others serve it. Files are so read and written without all of a buffer on any rank.
class StateExchange {
 public:
  // `held`: each rank's own elements (own_size()) of each buffer, the same buffers on all ranks. All arguments must
  // outlive this.
  StateExchange(comm::ProcessGroup& group, const comm::Shards& shards, const FlatParameters& parameters, Tensors held);

  // On rank 0. Elements [part.begin, part.end) of buffer `which`, from (on the host) or to all ranks.
  Tensor get(int64_t which, Part part);
  void put(int64_t which, Part part, const Tensor& x);
  void finish();  // the others return from serve()

  // On the others: until rank 0 calls finish().
  void serve();

 private:
  struct Request;
  Request agree(Request request);
  Tensor on_host(const Tensor& x) const;
  Tensor gathered(int64_t which, Part part);
  void spread(int64_t which, Part part, const Tensor& x);
  template <class F>
  void each_own(int64_t which, Part part, const Tensor& window, const F& f);

  comm::ProcessGroup& group_;
  const comm::Shards& shards_;
  const FlatParameters& parameters_;
  const Tensors held_;
};

}  // namespace ringtape
