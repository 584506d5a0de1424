#include "train/data/order.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/random.h"
#include "kernels/augment.h"
#include "train/data/files/encoded_images.h"

namespace ringtape {
static std::vector<int64_t> all_shuffled(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> out = permutation(int64_t(samples.size()), seed, Stream::shuffle, uint64_t(epoch));
  for (int64_t& i : out) i = samples[size_t(i)];
  return out;
}

// As the samples lie in their files, these in random order.
static std::vector<int64_t> by_shards(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                                      const EncodedImages* images) {
  std::map<int64_t, std::vector<int64_t>> shards;
  for (const int64_t i : samples) shards[images ? images->shard(i) : -1].push_back(i);
  std::vector<std::vector<int64_t>*> all;
  for (auto& [shard, members] : shards) std::sort(members.begin(), members.end()), all.push_back(&members);
  std::vector<int64_t> out;
  for (const int64_t k : permutation(int64_t(all.size()), seed, Stream::shards, uint64_t(epoch)))
    out.insert(out.end(), all[size_t(k)]->begin(), all[size_t(k)]->end());
  return out;
}

std::vector<int64_t> shuffled(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, int64_t buffer,
                              const EncodedImages* images) {
  if (buffer == 0) return all_shuffled(samples, seed, epoch);
  std::vector<int64_t> out = by_shards(samples, seed, epoch, images);
  const auto n = int64_t(out.size()), size = std::min(buffer, n);
  std::vector<int64_t> waiting(out.begin(), out.begin() + size);
  const uint64_t stream = uint64_t(Stream::shards) | uint64_t(epoch) << 8;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = philox(seed, stream, uint64_t(1) << 40 | uint64_t(i)).x[0];
    const auto at = size_t(below(bits, int64_t(waiting.size())));
    const int64_t next = i + size;  // of the samples as they lie; later than any that has been written
    const int64_t drawn = std::exchange(waiting[at], next < n ? out[size_t(next)] : waiting.back());
    if (next >= n) waiting.pop_back();
    out[size_t(i)] = drawn;
  }
  return out;
}

std::vector<int64_t> balanced(const std::vector<int64_t>& samples, const Tensor& labels, int classes, uint64_t seed,
                              int64_t epoch) {
  std::vector<std::vector<int64_t>> members(static_cast<size_t>(classes));
  for (const int64_t i : samples) {
    const int64_t label = labels.data<int64_t>()[i];
    RT_CHECK_AS(UsageError, label >= 0 && label < classes, "balanced sampling: a label ", label, " of ", classes,
                " classes");
    members[size_t(label)].push_back(i);
  }
  std::erase_if(members, [](const auto& of_class) { return of_class.empty(); });
  std::unordered_map<int64_t, int64_t> drawn;
  std::vector<int64_t> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Philox4 bits = philox(seed, uint64_t(Stream::balance) | uint64_t(epoch) << 8, i);
    const std::vector<int64_t>& of_class = members[size_t(below(bits.x[0], int64_t(members.size())))];
    const int64_t sample = of_class[size_t(below(bits.x[1], int64_t(of_class.size())))];
    out.push_back(sample + kDrawn * drawn[sample]++);
  }
  return out;
}

}  // namespace ringtape
