#include "comm/parallel/shards.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

namespace ringtape::comm {

Stretch divide(int64_t begin, int64_t end, std::span<const int64_t> places, int ranks) {
  std::vector<int64_t> cuts = {0};
  for (int r = 1; r < ranks; ++r) {
    const int64_t wanted = part_of(end - begin, ranks, r).begin + begin;
    const auto after = std::ranges::lower_bound(places, wanted);
    const int64_t above = after == places.end() ? end : std::min(*after, end),
                  below = after == places.begin() ? begin : std::max(*std::prev(after), begin);
    cuts.push_back((above - wanted < wanted - below ? above : below) - begin);
  }
  cuts.push_back(end - begin);
  return {begin, std::make_shared<const std::vector<int64_t>>(std::move(cuts))};
}

Stretch Stretch::within(Part part) const {
  const int64_t from = std::max(begin, part.begin), to = std::min(end(), part.end);
  if (from == begin && to == end()) return *this;
  std::vector<int64_t> some;
  for (const int64_t cut : *cuts) some.push_back(std::clamp(begin + cut, from, to) - from);
  return {from, std::make_shared<const std::vector<int64_t>>(std::move(some))};
}

Tensor own_part(std::span<const Part> own, const Tensor& held, Part part) {
  if (!held.defined()) return held;
  int64_t before = 0;
  for (const Part& o : own) {
    if (part.begin >= o.begin && part.end <= o.end)
      return held.window({part.size()}, {1}, before + part.begin - o.begin);
    before += o.size();
  }
  RT_CHECK(false, "elements ", part.begin, " to ", part.end, " are not of this rank");
}

Shards::Shards(ProcessGroup& group, std::vector<Stretch> stretches) : group_(group), stretches_(std::move(stretches)) {
  std::ranges::sort(stretches_, {}, &Stretch::begin);
  for (const Stretch& s : stretches_)
    if (const Part part = s.of(group.rank()); part.size() > 0) own_.push_back(part);
}

Shards::~Shards() {
  if (!into_) return;
  try {
    if (std::uncaught_exceptions() == 0) arrive(0, std::numeric_limits<int64_t>::max());
  } catch (const Error&) {  // the job has failed, and says so elsewhere
  }
  into_->set_arriving({});
}

int64_t Shards::own_size() const {
  int64_t size = 0;
  for (const Part& own : own_) size += own.size();
  return size;
}

Work Shards::gather_of(const Stretch& s, const Tensor& elements, int64_t begin) const {
  const Part all{begin, begin + elements.size()};
  if (std::max(s.begin, all.begin) >= std::min(s.end(), all.end)) return {};
  const Stretch some = s.within(all);
  return group_.all_gather(elements.window({some.end() - some.begin}, {1}, some.begin - begin), some.cuts);
}

void Shards::gather(const Tensor& elements, int64_t begin) const {
  std::vector<Work> works;
  for (const Stretch& s : stretches_) works.push_back(gather_of(s, elements, begin));
  for (const Work& work : works) work.wait();
}

void Shards::start_gather(const Tensor& whole) {
  if (into_) into_->await(0, into_->bytes());
  arriving_.clear();
  Work last;
  for (const Stretch& s : stretches_) {
    arriving_.emplace_back();
    if (s.begin < s.end()) arriving_.back() = last = gather_of(s, whole, 0);
  }
  last.start();
  into_ = whole.storage();
  const auto width = int64_t(size_of(whole.dtype()));
  into_->set_arriving([this, width](size_t begin, size_t end) {
    return arrive(int64_t(begin) / width, (int64_t(end) + width - 1) / width);
  });
}

bool Shards::arrive(int64_t begin, int64_t end) {
  const auto began = Clock::now();
  bool all = true;
  for (size_t i = 0; i < stretches_.size(); ++i) {
    if (arriving_[i] && stretches_[i].begin < end && stretches_[i].end() > begin) {
      arriving_[i]->wait();
      totals_.communicating += arriving_[i]->span().end - arriving_[i]->span().begin;
      arriving_[i].reset();
    }
    all = all && !arriving_[i];
  }
  totals_.exposed += Clock::now() - began;
  return all;
}

}  // namespace ringtape::comm
