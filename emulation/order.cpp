#include "emulation/order.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ringtape::emulation {
namespace {

const char anchor = 0;  // an address of this program; others are stored relative to it

}  // namespace

int32_t relative(const void* pc) { return int32_t(static_cast<const char*>(pc) - &anchor); }
const void* Access::pc() const { return &anchor + instruction; }

void merge(Stamp& into, const Stamp& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void Order::begin_grid() {
  grid_epoch_ = block_epoch_ = ++epoch_;
  blocks_.clear();
  fences_.clear();
  hand_overs_.clear();
}

void Order::begin_block(uint64_t number, int threads) {
  block_epoch_ = ++epoch_;
  blocks_.push_back({epoch_, number});
  seen_.clear();
  known_.clear();
  proxy_fences_.clear();
  std::memset(clocks_, 0, size_t(threads) * sizeof clocks_[0]);
  for (int i = 0; i < threads; ++i) clocks_[i][i % 32] = 1;
}

// Who has seen the end of which phases is known to all, as what they did is.
void Order::block_barrier() {
  ++epoch_;
  const size_t threads = size_t(block.size);
  Stamp phases(threads);
  for (const Stamp& each : known_)
    if (each.size() > threads) {
      phases.resize(std::max(phases.size(), each.size()));
      for (size_t i = threads; i < each.size(); ++i) phases[i] = std::max(phases[i], each[i]);
    }
  if (phases.size() > threads)
    for (Stamp& each : known_) merge(each, phases);
}

void Order::warp_barrier(int first_thread, uint32_t lanes) {
  uint32_t joined[32] = {};
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uint32_t* const row = clocks_[first_thread + std::countr_zero(rest)];
    for (int i = 0; i < 32; ++i) joined[i] = std::max(joined[i], row[i]);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    std::memcpy(clocks_[first_thread + lane], joined, sizeof joined);
    ++clocks_[first_thread + lane][lane];
  }
  if (known_.empty()) return;
  Stamp known;
  for (uint32_t rest = lanes; rest; rest &= rest - 1)
    merge(known, known_[size_t(first_thread + std::countr_zero(rest))]);
  for (uint32_t rest = lanes; rest; rest &= rest - 1) known_[size_t(first_thread + std::countr_zero(rest))] = known;
}

void Order::release(Stamp& stamp) {
  const size_t me = size_t(block.current);
  stamp.resize(std::max(stamp.size(), size_t(block.size)));
  if (!known_.empty()) merge(stamp, known_[me]);
  for (size_t i = 0, first = me / 32 * 32; i < 32 && first + i < size_t(block.size); ++i)
    stamp[first + i] = std::max(stamp[first + i], clocks_[me][i]);
  ++clocks_[me][me % 32];
}

void Order::acquire(int thread, const Stamp& stamp) {
  if (known_.empty()) known_.resize(size_t(block.size));
  merge(known_[size_t(thread)], stamp);
}

bool Order::knows(int thread, const Stamp& stamp) const {
  const size_t me = size_t(thread);
  for (size_t i = 0; i < stamp.size(); ++i) {
    const bool near = i < size_t(block.size) && i / 32 == me / 32;
    const bool heard = !known_.empty() && known_[me].size() > i && known_[me][i] >= stamp[i];
    if (stamp[i] > 0 && i != me && !heard && !(near && clocks_[me][i % 32] >= stamp[i])) return false;
  }
  return true;
}

uint32_t Order::phases_known(int thread, size_t barrier) const {
  const size_t at = size_t(block.size) + barrier;
  return !known_.empty() && known_[size_t(thread)].size() > at ? known_[size_t(thread)][at] : 0;
}

void Order::fence_proxy() {
  if (proxy_fences_.empty()) proxy_fences_.resize(size_t(block.size));
  uint32_t& clock = clocks_[block.current][block.current % 32];
  proxy_fences_[size_t(block.current)].push_back({epoch_, 0, clock, clock + 1});
  ++clock;
}

void Order::begin_async_write() {
  if (proxy_fences_.empty()) proxy_fences_.resize(size_t(block.size));
  const uint32_t clock = ++clocks_[block.current][block.current % 32];
  proxy_fences_[size_t(block.current)].push_back({epoch_, clock, clock, clock});
}

bool Order::fenced(const Access& write) const {
  if (write.epoch < block_epoch_) return true;  // by an earlier grid
  const size_t me = size_t(block.current), writer = write.thread();
  if (proxy_fences_.empty()) return false;
  const auto& fences = proxy_fences_[writer];
  auto f = std::lower_bound(fences.begin(), fences.end(), write.clock(),
                            [](const ProxyFence& each, uint32_t clock) { return each.to < clock; });
  while (f != fences.end() && f->from > write.clock()) ++f;
  if (f == fences.end()) return false;
  if (writer == me || f->epoch < epoch_) return true;
  const bool near = writer / 32 == me / 32 && clocks_[me][writer % 32] >= f->moment;
  return near || (!known_.empty() && known_[me].size() > writer && known_[me][writer] >= f->moment);
}

Order::Point Order::point() const {
  const uint32_t me = uint32_t(block.current);
  Point p{blocks_.size() - 1, epoch_, me, {}};
  std::memcpy(p.clocks, clocks_[me], sizeof p.clocks);
  return p;
}

bool Order::Point::after(const Access& a) const {
  return a.epoch < epoch ||
         (a.epoch == epoch && a.thread() / 32 == thread / 32 && clocks[a.thread() % 32] >= a.clock());
}

void Order::thread_fence() {
  fences_.push_back(point());
  ++clocks_[block.current][block.current % 32];
}

// The atomic operation acquires from earlier ones on the word, and releases to later ones.
void Order::atomic(const void* p) {
  const uint32_t me = uint32_t(block.current), clock = clocks_[me][me % 32];
  if (const auto it = hand_overs_.find(p); it != hand_overs_.end()) {
    const auto same = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& s) {
      return s.hand_overs == &it->second && s.thread == me && s.epoch == epoch_ && s.clock == clock;
    });
    if (same != seen_.end()) same->count = it->second.size();
    else seen_.push_back({&it->second, it->second.size(), epoch_, me, clock});
  }
  if (!fences_.empty() && fences_.back().block == blocks_.size() - 1)
    hand_overs_[p].push_back({point(), fences_.size()});
}

size_t Order::ordinal(uint32_t epoch) const {
  const auto next =
      std::upper_bound(blocks_.begin(), blocks_.end(), epoch, [](uint32_t e, const Started& s) { return e < s.epoch; });
  return size_t(next - blocks_.begin()) - 1;
}

bool Order::fenced(const Access& a, const HandOver& h) const {
  const Point& release = h.release;
  for (size_t i = h.fences; i-- > 0 && fences_[i].block == release.block;) {
    const Point& f = fences_[i];
    const bool before_release =
        f.epoch < release.epoch || f.thread == release.thread ||
        (f.thread / 32 == release.thread / 32 && release.clocks[f.thread % 32] > f.clocks[f.thread % 32]);
    if (before_release && f.after(a)) return true;
  }
  return false;
}

bool Order::handed_over(const Access& a) const {
  const uint32_t me = uint32_t(block.current);
  const size_t from = ordinal(a.epoch);
  for (const Seen& s : seen_) {
    const bool mine =
        s.thread == me || s.epoch < epoch_ || (s.thread / 32 == me / 32 && clocks_[me][s.thread % 32] >= s.clock);
    for (size_t i = 0; mine && i < s.count; ++i)
      if ((*s.hand_overs)[i].release.block == from && fenced(a, (*s.hand_overs)[i])) return true;
  }
  return false;
}

}  // namespace ringtape::emulation
