#include "comm/parallel/reducer.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "comm/parallel/agreement.h"
#include "comm/parallel/reduction/reductions.h"
#include "core/recording.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace ringtape::comm {

void visit(Fields& f, ReducerOptions& o) {
  f("bucket-mb", o.bucket_mb,
    {.help = "MiB of gradients per bucket; a bucket is sent while the other gradients are computed",
     .unit = "X",
     .range = {1e-6, 1e6},
     .may_change = true});
  f("no-overlap", o.no_overlap,
    {.help = "send all gradients after the backward pass, not during it; for comparison", .may_change = true});
  f("gradient-reduction", o.reduction.name,
    {.help = "how ranks sum gradients: sum, in bf16 or f16 (half the bytes), or powersgd (low-rank approximation; the "
             "remainder is added in later steps, and lost on --resume)",
     .unit = "NAME",
     .choices = [] { return names_of(reductions()); },
     .selects = true});
}

struct Reducer::Bucket {
  int64_t begin, end;  // elements of the memory
  int64_t slots = 0, missing = 0;
  Clock::time_point ready{};
  Tensor memory{};  // undefined while it has none
  ProcessGroup::Cuts cuts{};
  Part own{}, kept{};  // of this rank: elements of the bucket, of kept_
  std::unique_ptr<Reduction> reduction{};
  std::vector<std::pair<Work::Span, int64_t>> sent{};  // and its bytes
  void finish() {
    reduction->finish();
    at_each_launch([this] {
      sent.clear();
      for (const Reduction::Sent& s : reduction->sent()) sent.emplace_back(s.work.span(), s.bytes);
    });
  }
};

Reducer::Reducer(ProcessGroup& group, const Tensor& memory, std::vector<GradientSlot> slots, ReducerOptions options,
                 const Sharding& sharding)
    : group_(group), memory_(memory), slots_(std::move(slots)), reduction_(options.reduction),
      words_(window(0, ControlWords::size(int64_t(slots_.size()))), int64_t(slots_.size()), options.prompt),
      kept_shares_{.shares = options.shares}, exact_(sharding.places.empty() && find_reduction(reduction_.name).exact),
      releases_(sharding.release), bucket_of_(slots_.size()), used_(slots_.size()), done_(slots_.size()),
      reached_(slots_.size()) {
  const std::vector<uint64_t> places(sharding.places.begin(), sharding.places.end());
  RT_CHECK_AS(UsageError, !releases_ || !find_reduction(reduction_.name).needs_all, reduction_.name,
              ": needs whole gradients, which are not kept");
  std::string lines = places.empty() ? "sums for all ranks\n" : concat("sums in shards, ", hash_of(places), "\n");
  for (const GradientSlot& s : slots_) lines += concat(s.name, " ", memory_.dtype(), " ", s.leaf->shape, "\n");
  check_same(group_, "the parameters", lines);
  plan(options);
  begin_shares();
  if (!sharding.places.empty()) divide_buckets(sharding.places);
  for (Bucket& b : buckets_) {
    if (releases_) continue;
    b.memory = window(b.begin, b.end);
    make_reduction(b);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].leaf->hook = [this, i](const Tensor&) {
      if (armed_) completed(i);
    };
    if (releases_) slots_[i].leaf->open_slot = [this, i] { open(buckets_[bucket_of_[i]]); };
  }
}

Reducer::~Reducer() {
  for (const GradientSlot& s : slots_) s.leaf->hook = {}, s.leaf->open_slot = {};
}

// From the last gradient to the first: a bucket is closed when it is large enough, and when the remaining gradients are
// small enough for the last bucket.
std::vector<Part> buckets_of(std::span<const Part> gradients, const ReducerOptions& options) {
  const int64_t bucket_bytes = int64_t(options.bucket_mb * double(1 << 20)),
                small_bytes = std::min(options.small_bytes, bucket_bytes);
  const auto size = [&](Part b) { return gradients[size_t(b.end - 1)].end - gradients[size_t(b.begin)].begin; };
  std::vector<Part> out;
  bool was_small = false;
  for (auto i = int64_t(gradients.size()); i-- > 0;) {
    const int64_t limit = out.size() > 1 ? bucket_bytes : small_bytes;
    const bool small = gradients[size_t(i)].end <= small_bytes;
    const bool full = !out.empty() && size(out.back()) >= limit;
    if (out.empty() || (!options.no_overlap && (full || (small && !was_small)))) out.push_back({i, i + 1});
    out.back().begin = i;
    was_small = small;
  }
  return out;
}

void Reducer::plan(const ReducerOptions& options) {
  const int64_t front = slots_.front().begin, bytes = int64_t(size_of(memory_.dtype()));
  std::vector<Part> gradients;
  for (const GradientSlot& s : slots_) gradients.push_back({bytes * (s.begin - front), bytes * (s.end - front)});
  for (const Part& part : buckets_of(gradients, options)) {
    for (int64_t i = part.begin; i < part.end; ++i) bucket_of_[size_t(i)] = buckets_.size();
    buckets_.push_back(
        {.begin = slots_[size_t(part.begin)].begin, .end = slots_[size_t(part.end - 1)].end, .slots = part.size()});
  }
  if (exact_) buckets_.back().begin = 0;
}

void Reducer::divide_buckets(const std::vector<int64_t>& places) {
  int64_t kept = 0;
  for (size_t b = buckets_.size(); b-- > 0;) {  // the first elements first
    Bucket& bucket = buckets_[b];
    const Stretch stretch = stretches_.emplace_back(divide(bucket.begin, bucket.end, places, group_.size()));
    const Part own = stretch.of(group_.rank());
    bucket.cuts = stretch.cuts, bucket.own = {own.begin - bucket.begin, own.end - bucket.begin};
    bucket.kept = {kept, kept + own.size()};
    kept += own.size();
  }
  if (releases_) kept_ = zeros({kept}, memory_.dtype(), memory_.device());
}

void Reducer::make_reduction(Bucket& bucket) {
  Gradients gradients{bucket.memory.window({bucket.end - bucket.begin}, {1}), {}, bucket.cuts};
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (&buckets_[bucket_of_[i]] != &bucket) continue;
    const GradientSlot& s = slots_[i];
    const Shape& shape = s.leaf->shape;
    const Tensor gradient = bucket.memory.window(shape, contiguous_strides(shape), s.begin - bucket.begin);
    if (releases_) s.leaf->grad_slot = gradient;
    gradients.members.push_back({gradient, words_.used(int64_t(i)), s.begin});
  }
  if (kept_shares_.shares > 0) {
    gradients.kept = &kept_shares_, gradients.begin = bucket.begin;
    bucket.reduction = make_over_shares(group_, std::move(gradients));
    return;
  }
  bucket.reduction = find_reduction(reduction_.name).make(group_, std::move(gradients), reduction_.chosen());
}

// During backward() it waits until at most two others have memory, which in time are all sent. What gets no gradient is
// 0.
void Reducer::open(Bucket& bucket) {
  if (bucket.memory.defined()) return;
  const auto began = Clock::now();
  while (waits_ && open_ >= kMaxOpen && released_ < launched_) release();
  totals_.exposed += Clock::now() - began;
  bucket.memory = memory_for(bucket.end - bucket.begin);
  ++open_;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const GradientSlot& s = slots_[i];
    if (&buckets_[bucket_of_[i]] != &bucket) continue;
    const int64_t from = s.begin + (armed_ && used_[i] ? s.leaf->shape.size() : 0);
    if (from < s.end) fill(bucket.memory.window({s.end - from}, {1}, from - bucket.begin), 0);
  }
  make_reduction(bucket);
}

// The smallest that is large enough. Fresh shared memory is slow when it is first touched.
Tensor Reducer::memory_for(int64_t elements) {
  std::ranges::sort(spare_, {}, &Tensor::size);
  const auto fit = std::ranges::lower_bound(spare_, elements, {}, &Tensor::size);
  Tensor memory;
  if (fit != spare_.end()) memory = *fit, spare_.erase(fit);
  else if (!spare_.empty() && open_ + spare_.size() >= kMaxOpen) spare_.erase(spare_.begin());
  if (!memory.defined()) memory = group_.allocate({elements}, memory_.dtype());
  return memory;
}

void Reducer::release() {
  Bucket& b = buckets_[released_++];
  b.finish();
  copy(kept_.window({b.kept.size()}, {1}, b.kept.begin), b.memory.window({b.own.size()}, {1}, b.own.begin));
  b.reduction.reset();
  if (spare_.size() < kMaxOpen) spare_.push_back(std::move(b.memory));
  b.memory = {};
  for (size_t i = 0; i < slots_.size(); ++i)
    if (&buckets_[bucket_of_[i]] == &b) slots_[i].leaf->grad = slots_[i].leaf->grad_slot = {};
  --open_;
}

void Reducer::keep(const Step& step) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    used_[i] = slots_[i].leaf->grad.defined();
    if (!used_[i]) fill(window(slots_[i].begin, slots_[i].end), 0);
    slots_[i].leaf->grad = {};
  }
  words_.write(step, used_);
  const Tensor sum = empty_like(memory_);
  copy(sum, memory_);
  const int64_t at = kept_shares_.next++;
  add_share(kept_shares_.sums, {{at, at + 1}, sum}, kept_shares_.shares);
}

void Reducer::arm(const Tensor& loss, const Step& step) {
  RT_CHECK(!armed_, "Reducer::arm: the previous step has not finished");
  std::unordered_set<const Node*> reached;
  if (loss.defined())
    for (const NodePtr& leaf : used_leaves(loss)) reached.insert(leaf.get());
  for (Bucket& b : buckets_) b.missing = b.slots;
  launched_ = released_ = 0;
  armed_ = true;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const GradientSlot& s = slots_[i];
    const bool to_come = reached.contains(s.leaf.get());
    used_[i] = to_come || s.leaf->grad.defined();
    done_[i] = false;
    const Bucket& b = buckets_[bucket_of_[i]];
    if (!used_[i] && b.memory.defined())  // what is opened later is 0
      fill(b.memory.window({s.end - s.begin}, {1}, s.begin - b.begin), 0);
  }
  words_.write(step, used_);
  if (!exact_) sending_words_ = group_.all_reduce(words_.memory()).start();
  for (size_t i = slots_.size(); i-- > 0;)
    if (!reached.contains(slots_[i].leaf.get())) completed(i);
  waits_ = true;  // not before: other ranks may need this one to begin its backward()
}

void Reducer::begin_shares() {
  if (kept_shares_.shares == 0) return;
  kept_shares_.sums.clear();
  kept_shares_.next = part_of(kept_shares_.shares, group_.size(), group_.rank()).begin;
}

void Reducer::completed(size_t slot) {
  RT_CHECK_AS(AutogradError, !done_[slot], "the gradient of ", slots_[slot].name,
              " was completed twice in one step; only the last backward() of a step may come after Reducer::arm");
  done_[slot] = true;
  Bucket& b = buckets_[bucket_of_[slot]];
  if (--b.missing > 0) return;
  at_each_launch([&b] { b.ready = Clock::now(); });
  launch();
}

void Reducer::launch() {
  for (; launched_ < buckets_.size() && buckets_[launched_].missing == 0; ++launched_) {
    open(buckets_[launched_]);
    buckets_[launched_].reduction->start();
  }
}

void Reducer::finish() {
  RT_CHECK(armed_, "Reducer::finish without arm");
  // An operation may give no gradient for one of its inputs: then the gradient is 0.
  for (size_t i = slots_.size(); i-- > 0;) {
    const GradientSlot& s = slots_[i];
    if (done_[i]) continue;
    if (!s.leaf->grad.defined()) {
      open(buckets_[bucket_of_[i]]);
      fill(s.leaf->grad_slot, 0);
      s.leaf->grad = s.leaf->grad_slot;
    }
    completed(i);
  }
  at_each_launch([this] { waited_.begin = Clock::now(); });
  sending_words_.wait();
  while (releases_ && released_ < buckets_.size()) release();
  for (Bucket& b : buckets_)
    if (b.reduction) b.reduction->proceed();
  for (Bucket& b : buckets_)
    if (b.reduction) b.finish();
  at_each_launch([this] { ended(); });
  armed_ = waits_ = false;
  begin_shares();
  settle_missing();
  words_.read();
}

void Reducer::ended() {
  waited_.end = Clock::now();
  totals_.exposed += waited_.end - waited_.begin;
  totals_.steps += 1;
  count_sent();
}

bool Reducer::repeats() const {
  return !releases_ && kept_shares_.shares == 0 && find_reduction(reduction_.name).repeats;
}

void Reducer::count_sent() {
  const auto count = [this](const Work::Span& span, int64_t bytes) {
    totals_.bytes += bytes;
    totals_.communicating += span.end - span.begin;
  };
  if (!exact_) count(sending_words_.span(), words_.memory().size() * int64_t(size_of(memory_.dtype())));
  for (const Bucket& b : buckets_)
    for (const auto& [span, bytes] : b.sent) count(span, bytes);
}

// Only a rank without a gradient has to check whether others have one.
void Reducer::settle_missing() {
  reached_ = used_;
  if (std::find(used_.begin(), used_.end(), false) == used_.end()) return;
  reached_ = words_.reached();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (reached_[i] && !used_[i] && !releases_) slots_[i].leaf->grad = slots_[i].leaf->grad_slot;
}

std::vector<Reducer::Trace> Reducer::trace() const {
  std::vector<Trace> out;
  for (const Bucket& b : buckets_) {
    Trace t{.ready = b.ready};
    for (const auto& [span, bytes] : b.sent) {
      t.bytes += bytes;
      if (t.end == Clock::time_point()) t.begin = span.begin;
      t.end = span.end;
    }
    out.push_back(t);
  }
  return out;
}

}  // namespace ringtape::comm
