#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "comm/parallel/reduction.h"
#include "core/readback.h"

namespace ringtape::comm {

// A parameter and the place of its gradient in a flat buffer of all of them: elements [begin, end), its own first.
struct GradientSlot {
  std::string name;
  NodePtr leaf;  // its grad_slot lies there
  int64_t begin, end;
};

struct ReducerOptions {
  double bucket_mb = 25;  // MiB: a bucket is closed once it has as many
  // The same of the first, if fewer, so that sending starts early, and what the last has at most, for which all wait.
  int64_t small_bytes = 1 << 20;
  bool no_overlap = false;  // one bucket, which goes behind backward()
  Selection reduction{reductions(), "sum"};
};
void visit(Fields& f, ReducerOptions& o);  // but for the settings of the reductions themselves

// Sums gradients over the ranks of a group while backward() still makes others, as PyTorch's DistributedDataParallel
// does (Li et al., "PyTorch Distributed", 2020). Gradients lie in buckets, slices of one flat buffer, in the reverse
// order of the parameters, which is nearly that in which backward() completes them; a bucket goes as soon as it is
// complete and those before it have gone. Nothing is divided: each rank weighs its loss by its share of the batch, and
// the sum is the exact mean. How a bucket is summed is a Reduction; the usual one copies nothing.
//
// The last bucket also carries, in front of the gradients, what the ranks tell each other with
// every step: the loss, the number of samples, the wish to stop, and which parameters were used.
// Where its sums are not exact, that goes by itself, before the first bucket. A parameter that no
// rank used keeps no gradient; one that some rank used has it on all.
class Reducer {
 public:
  // Memory for `size` gradients of `parameters` parameters: (control_size(parameters) + size), of which the first
  // control_size(...) are the reducer's.
  static int64_t control_size(int64_t parameters);

  // `memory`: as above, of the group's device; the slots begin behind the words. Throws CommError on every rank, with
  // the first parameter that one has otherwise than rank 0.
  Reducer(ProcessGroup& group, const Tensor& memory, std::vector<GradientSlot> slots, ReducerOptions options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // What a rank brings to a step.
  struct Step {
    Tensor loss;          // (): of its samples, weighed by their share of all; undefined: 0
    int64_t samples = 0;  // of this rank
    int64_t expected = 0; // of all ranks together
    bool stop = false;    // it wishes to stop
  };
  // The next backward(loss) on this thread is the last of the step: gradients are complete as it has made them. An
  // undefined loss: there is none, the gradients are what they are.
  void arm(const Tensor& loss, const Step& step);

  // After that backward(): returns when all gradients are sums, which on a GPU they are in the order of its stream.
  // Throws CommError if the ranks have not had `expected` samples together.
  void finish();

  // (): the sum of all ranks' weighed losses, of the step that finish() has ended.
  const Tensor& loss() const { return loss_; }
  // Whether a rank wished to stop, the same on all: in the step that has ended; on a GPU in the
  // one before, so that nobody waits to know.
  bool stop() const { return stop_; }

  // Of one bucket in the last step: when its gradients were complete, and when what it sends
  // first went and last was back, on the host.
  struct Trace {
    int64_t bytes = 0;
    Clock::time_point ready{}, begin{}, end{};
  };
  std::vector<Trace> trace() const;
  struct Totals {
    int64_t steps = 0, bytes = 0;           // that were handed to all_reduce
    Seconds communicating{0}, exposed{0};  // buckets on their way; finish() waiting for them
  };
  const Totals& totals() const { return totals_; }
  Work::Span waited() const { return waited_; }  // when finish() last did

 private:
  struct Bucket;
  void plan(const ReducerOptions& options);
  void make_reductions(const Selection& reduction);
  void completed(size_t slot);
  void launch();
  void write_words(const Step& step);
  void read_words();
  void settle_missing();
  void count_sent();
  Tensor window(int64_t begin, int64_t end) const { return memory_.window({end - begin}, {1}, begin); }

  ProcessGroup& group_;
  const Tensor memory_;
  const std::vector<GradientSlot> slots_;
  const bool exact_;                // the words stand in front of the last bucket
  Work words_;                      // where they go by themselves
  std::vector<Bucket> buckets_;     // in the order in which they go
  std::vector<size_t> bucket_of_;   // a slot's
  size_t launched_ = 0;
  bool armed_ = false;
  std::vector<char> used_, done_;   // of this step, by slot: whether this rank has a gradient, whether it is complete
  std::vector<double> control_words_;        // the words last written,
  Tensor control_words_on_device_;               // and there
  Tensor loss_;
  Readback pending_control_words_;
  int64_t expected_ = 0, expected_before_ = 0;
  bool stop_ = false;
  Totals totals_;
  Work::Span waited_;
};

}  // namespace ringtape::comm
