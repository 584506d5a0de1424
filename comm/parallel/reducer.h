#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "comm/parallel/control_words.h"
#include "comm/parallel/reduction.h"
#include "comm/parallel/shards.h"
#include "core/part.h"

namespace ringtape::comm {

// A parameter and the place of its gradient in the flat buffer of all gradients: elements [begin, end), the gradient
// first.
struct GradientSlot {
  std::string name;
  NodePtr leaf;  // its grad_slot is there
  int64_t begin, end;
};

// Which sums of gradients a rank gets.
struct Sharding {
  // Each bucket is divided among the ranks, with cuts at some of these elements, and a rank gets only the sums of its
  // part. None: every rank gets all sums.
  std::vector<int64_t> places = {};
  // A bucket has memory only from its first gradient until it is summed, of which kept() remains. There is memory for
  // three of them; for all if gradients are added up over several backward passes, and for those of which this rank has
  // no gradient. Not for a reduction that needs whole gradients.
  bool release = false;
};

struct ReducerOptions {
  double bucket_mb = 25;  // MiB: a bucket is closed once it has this size
  // The same for the first bucket, if smaller, so that sending starts early; also the maximum of the last bucket, for
  // which all ranks wait.
  int64_t small_bytes = 1 << 20;
  bool no_overlap = false;  // one bucket, which is sent after backward()
  Selection reduction{reductions(), "sum"};
  // No settings: a batch consists of so many shares (comm/parallel/share_tree.h), 0: of a part for each rank; the host
  // waits for the words of each step, on a GPU, too.
  int64_t shares = 0;
  bool prompt = false;
};
void visit(Fields& f, ReducerOptions& o);  // without the settings of the reductions

// The buckets of gradients, in the order of sending: which of them each has. `gradients`: bytes of their flat buffer.
std::vector<Part> buckets_of(std::span<const Part> gradients, const ReducerOptions& options);

// Sums gradients over the ranks of a group while backward() still computes others, as PyTorch's DistributedDataParallel
// does (Li et al., "PyTorch Distributed", 2020). Gradients are in buckets, slices of one flat buffer, in the reverse
// order of the parameters, which is nearly the order in which backward() completes them. A bucket is sent as soon as it
// is complete and the earlier ones have been sent. Nothing is divided: each rank weights its loss by its share of the
// batch, and the sum is the exact mean. A Reduction sums a bucket; the default one copies nothing.
//
// The last bucket also carries the control words of each step, in front of the gradients. If its sums are not exact,
// the control words are sent separately, before the first bucket. A parameter that no rank used has no gradient; one
// that some rank used has a gradient on all.
class Reducer {
 public:
  // `memory`: on the group's device: ControlWords::size() elements, then, unless it is released, the gradients, where
  // the slots begin. Throws CommError on every rank, naming the first parameter in which a rank differs from rank 0.
  Reducer(ProcessGroup& group, const Tensor& memory, std::vector<GradientSlot> slots, ReducerOptions options = {},
          const Sharding& sharding = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  static constexpr size_t kMaxOpen = 3;  // buckets that have memory at a time, if it is released

  using Riders = ControlWords::Riders;
  using Step = ControlWords::Step;
  // The buckets, with the part of each rank; empty if they are not divided.
  const std::vector<Stretch>& stretches() const { return stretches_; }
  // If memory is released: the sums of this rank's parts, those of the first elements first.
  const Tensor& kept() const { return kept_; }
  // By slot, after finish(): whether any rank has its gradient.
  const std::vector<char>& reached() const { return reached_; }

  // With shares: the gradients of one of this rank's shares of the batch, but the last, are complete: it is as if
  // another backward() began.
  void keep(const Step& step);

  // The next backward(loss) on this thread is the last of the step: it completes the gradients. An undefined loss means
  // no backward(): the gradients are sent as they are.
  void arm(const Tensor& loss, const Step& step);

  // After that backward(): returns when all gradients are sums (on a GPU: in the order of its stream). Throws CommError
  // if the ranks together did not have `expected` samples.
  void finish();

  // No finish() comes: the recording of the step (core/recording.h) was given up, and nothing was sent.
  void give_up() { armed_ = waits_ = false; }
  // Whether what it does on the host is the same in each step with the same gradients, so that steps can be recorded.
  bool repeats() const;

  const ControlWords& words() const { return words_; }  // of the step that finish() ended

  // The times of one bucket in the last step, on the host: its gradients were complete; its first message was sent; its
  // last message was back.
  struct Trace {
    int64_t bytes = 0;
    Clock::time_point ready{}, begin{}, end{};
  };
  std::vector<Trace> trace() const;
  struct Totals {
    int64_t steps = 0, bytes = 0;          // bytes given to all_reduce
    Seconds communicating{0}, exposed{0};  // buckets on their way; finish() waiting for them
  };
  const Totals& totals() const { return totals_; }
  Work::Span waited() const { return waited_; }  // in the last finish()

 private:
  struct Bucket;
  void plan(const ReducerOptions& options);
  void divide_buckets(const std::vector<int64_t>& places);
  void make_reduction(Bucket& bucket);
  void open(Bucket& bucket);
  Tensor memory_for(int64_t elements);
  void release();  // the oldest bucket that has been sent
  void completed(size_t slot);
  void launch();
  void begin_shares();
  void settle_missing();
  void ended();
  void count_sent();
  Tensor window(int64_t begin, int64_t end) const { return memory_.window({end - begin}, {1}, begin); }

  ProcessGroup& group_;
  const Tensor memory_;
  const std::vector<GradientSlot> slots_;
  const Selection reduction_;
  ControlWords words_;
  KeptShares kept_shares_;
  const bool exact_;  // the control words are in front of the last bucket
  const bool releases_;
  Work sending_words_;              // if they are sent separately
  std::vector<Bucket> buckets_;     // in the order of sending
  std::vector<Stretch> stretches_;  // of the buckets
  Tensor kept_;
  std::vector<Tensor> spare_;                      // memory of buckets, to be used again
  std::vector<size_t> bucket_of_;                  // of each slot
  size_t launched_ = 0, released_ = 0, open_ = 0;  // buckets
  bool armed_ = false, waits_ = false;             // between arm() and finish(); in backward(), where open() may wait
  // Of this step, by slot: this rank has a gradient; it is complete; any rank has one.
  std::vector<char> used_, done_, reached_;
  Totals totals_;
  Work::Span waited_;
};

}  // namespace ringtape::comm
