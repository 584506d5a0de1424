#pragma once
#include <algorithm>
#include <optional>
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
  Stretch within(Part part) const;  // its elements in `part`, which has some: each of the same rank as before
};

// Elements [begin, end) in parts that are as equal as cuts at some of the `places` allow. Places ascend; those before
// begin and from end on are not used.
Stretch divide(int64_t begin, int64_t end, std::span<const int64_t> places, int ranks);

// Elements [part.begin, part.end) of a flat buffer, which follow one another in one of the parts `own`, in a tensor
// that has these parts only, one behind the other; undefined in an undefined one.
Tensor own_part(std::span<const Part> own, const Tensor& held, Part part);

// Which rank holds which elements of flat buffers that have the same layout on all ranks.
class Shards {
 public:
  Shards(ProcessGroup& group, std::vector<Stretch> stretches);  // which do not overlap

  const std::vector<Stretch>& stretches() const { return stretches_; }
  const std::vector<Part>& own() const { return own_; }  // this rank's elements, ascending; no empty parts
  int64_t own_size() const;

  // Calls f(elements of `held`, the same elements of x) for this rank's own ones of x, which are [begin, begin +
  // x.size()) of a buffer. `held` (own_size()): only the own ones.
  template <class F> void each_own(const Tensor& held, const Tensor& x, int64_t begin, const F& f) const {
    for (const Part& own : own_) {
      const Part both{std::max(own.begin, begin), std::min(own.end, begin + x.size())};
      if (both.begin < both.end) f(own_part(own_, held, both), x.window({both.size()}, {1}, both.begin - begin));
    }
  }

  // `elements`, contiguous, are [begin, begin + size()) of a buffer: each rank's are copied to all others. All ranks
  // call it with the same arguments. Returns when it is done (on a GPU: in the order of its stream).
  void gather(const Tensor& elements, int64_t begin = 0) const;
  // The same for a whole buffer, the first of its storage, while the caller continues: who uses elements of it waits
  // until they are there.
  void start_gather(const Tensor& whole);

  // Of what start_gather() began and has been used: on its way; waited for.
  struct Totals {
    Seconds communicating{0}, exposed{0};
  };
  const Totals& totals() const { return totals_; }
  ~Shards();

 private:
  Work gather_of(const Stretch& stretch, const Tensor& elements, int64_t begin) const;
  bool arrive(int64_t begin, int64_t end);

  ProcessGroup& group_;
  std::vector<Stretch> stretches_;
  std::vector<Part> own_;
  std::vector<std::optional<Work>> arriving_;  // of each stretch; nothing: it is there
  std::shared_ptr<Storage> into_;
  Totals totals_;
};

}  // namespace ringtape::comm
