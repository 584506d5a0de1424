#pragma once
#include <utility>
#include <vector>

#include "comm/parallel/shards.h"

namespace ringtape {

// Lets rank 0 read and write, some elements at a time, flat buffers whose elements are held by the ranks that own them,
// while the others serve it. Files are so read and written without all of a buffer on any rank.
class StateExchange {
 public:
  struct Held {
    Tensor own;  // this rank's elements (shards.own_size()) of a buffer
    const comm::Shards& shards;
  };
  // `held`: the same buffers on all ranks. The group and the shards must outlive this.
  StateExchange(comm::ProcessGroup& group, std::vector<Held> held) : group_(group), held_(std::move(held)) {}

  // The number of a buffer.
  int64_t number_of(const Tensor& own) const;

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

  comm::ProcessGroup& group_;
  const std::vector<Held> held_;
};

}  // namespace ringtape
