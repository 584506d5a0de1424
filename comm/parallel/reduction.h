#pragma once
#include <span>

#include "comm/parallel/share_tree.h"
#include "comm/process_group.h"
#include "core/settings.h"

namespace ringtape::comm {

// The shares of a batch that a rank has computed before its last one, which is in the buckets.
struct KeptShares {
  int64_t shares = 0;  // of the whole batch; 0: it is not divided so
  int64_t next = 0;    // the one that is computed next
  std::vector<ShareSum> sums{};
};

// The gradients of a bucket.
struct Gradients {
  struct Member {
    Tensor gradient;  // in the parameter's shape, contiguous
    Tensor users;     // (): how many ranks have one; known from Reduction::proceed() on
    int64_t place;    // a number that is unique over all buckets, the same on all ranks
  };
  Tensor all;  // (n): the members, zeros in between
  std::vector<Member> members;
  // Which elements of `all` a rank needs the sums of; null: all of them.
  ProcessGroup::Cuts cuts = {};
  const KeptShares* kept = nullptr;  // `all` is elements [begin, begin + n) of their sums; null: none
  int64_t begin = 0;
};

// Replaces the gradients of one bucket, or at least this rank's part of them, by their exact or approximate sums over
// the ranks; PyTorch calls this a communication hook. The Reducer calls start() of each bucket in their order, then
// proceed() of all, then finish() of all. Gradients are already weighted by their rank's share of the batch, so nothing
// is divided. The result has the same bits on all ranks. With cuts it has those of a sum without cuts if the group is
// deterministic or its ranks share memory.
class Reduction {
 public:
  virtual ~Reduction() = default;
  void start();               // the gradients are complete; does not wait for other ranks
  virtual void proceed() {}   // work that waits for other ranks before more is sent
  virtual void finish() = 0;  // returns when the gradients are sums (on a GPU: in the order of its stream)

  // Since start(), in the order of sending. Bytes of an all-reduce; a reduce-scatter is half of one and counts half.
  struct Sent {
    Work work;
    int64_t bytes;
  };
  const std::vector<Sent>& sent() const { return sent_; }

 protected:
  explicit Reduction(ProcessGroup& group) : group_(group) {}
  virtual void begin() = 0;
  // Begins to sum y over the ranks, in place; with cuts, each rank's part of it.
  void send(const Tensor& y, const ProcessGroup::Cuts& cuts = {});
  // Begins all_to_all, all_gather.
  void exchange(const Tensor& y, const Tensor& x);
  void gather(const Tensor& y, const Tensor& x);
  void wait() const;  // for everything that was sent

 private:
  ProcessGroup& group_;
  std::vector<Sent> sent_;
};

struct ReductionEntry {
  const char* name;
  bool exact = false;  // small whole numbers in front of a bucket are summed exactly
  std::unique_ptr<Reduction> (*make)(ProcessGroup& group, Gradients gradients, const Settings& settings);
  Settings settings = {};
  bool needs_all = false;  // it needs all elements of a bucket in every step
  bool scaled = false;     // small gradients would be lost: the loss needs a scale
  bool repeats = true;     // each step is the same work, which can be recorded (core/recording.h)
};

// All reductions. Each is in its own file under reduction/ and in the list of reduction.cpp.
std::span<const ReductionEntry> reductions();
const ReductionEntry& find_reduction(std::string_view name);  // throws UsageError with the nearest name

}  // namespace ringtape::comm
