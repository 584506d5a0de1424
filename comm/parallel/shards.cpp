#include "comm/parallel/shards.h"

#include <algorithm>
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

Shards::Shards(ProcessGroup& group, std::vector<Stretch> stretches) : group_(group), stretches_(std::move(stretches)) {
  std::ranges::sort(stretches_, {}, &Stretch::begin);
  for (const Stretch& s : stretches_)
    if (const Part part = s.of(group.rank()); part.size() > 0) own_.push_back(part);
}

Seconds Shards::gather(const Tensor& elements, int64_t begin) const {
  const auto began = Clock::now();
  const int64_t end = begin + elements.size();
  std::vector<Work> works;
  for (const Stretch& s : stretches_) {
    const int64_t from = std::max(begin, s.begin), to = std::min(end, s.end());
    if (from >= to) continue;
    std::vector<int64_t> cuts;
    for (const int64_t cut : *s.cuts) cuts.push_back(std::clamp(s.begin + cut, from, to) - from);
    const bool whole = from == s.begin && to == s.end();
    works.push_back(group_.all_gather(elements.window({to - from}, {1}, from - begin),
                                      whole ? s.cuts : std::make_shared<const std::vector<int64_t>>(std::move(cuts))));
  }
  for (const Work& work : works) work.wait();
  return Clock::now() - began;
}

}  // namespace ringtape::comm
