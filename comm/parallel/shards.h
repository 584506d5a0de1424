#pragma once
#include <span>
#include <vector>

#include "comm/process_group.h"
#include "core/part.h"

namespace ringtape::comm {

// A stretch of a flat buffer that is divided among the ranks: rank r has elements begin + [cuts[r], cuts[r + 1]).
struct Stretch {
  int64_t begin = 0;
  ProcessGroup::Cuts cuts;
  int64_t end() const { return begin + cuts->back(); }
  Part of(int rank) const { return {begin + (*cuts)[size_t(rank)], begin + (*cuts)[size_t(rank) + 1]}; }
};

// Elements [begin, end) in parts that are as equal as cuts at some of the `places` allow. Places ascend; those before
// begin and from end on are not used.
Stretch divide(int64_t begin, int64_t end, std::span<const int64_t> places, int ranks);

// Which rank holds which elements of flat buffers that have the same layout on all ranks.
class Shards {
 public:
  Shards(ProcessGroup& group, std::vector<Stretch> stretches);  // which do not overlap

  const std::vector<Part>& own() const { return own_; }  // this rank's elements, ascending; no empty parts

  // `elements`, contiguous, are [begin, begin + size()) of a buffer: each rank's are copied to all others. All ranks
  // call it with the same arguments. Returns when it is done (on a GPU: in the order of its stream): the time it took.
  Seconds gather(const Tensor& elements, int64_t begin = 0) const;

 private:
  ProcessGroup& group_;
  std::vector<Stretch> stretches_;
  std::vector<Part> own_;
};

}  // namespace ringtape::comm
