#include "comm/parallel/sharded_buffers.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/copy.h"
#include "kernels/kernel.h"

namespace ringtape::comm {

constexpr size_t kMostGathered = 3;  // pieces: the last one, the one in use, the next one

struct ShardedBuffers::Piece {
  size_t index, buffer;
  Stretch stretch;
  Tensor own;                        // this rank's elements
  DType dtype;                       // as which they are gathered
  std::shared_ptr<Storage> storage;  // of the windows
  Tensor memory{};                   // bytes; undefined: it has none
  std::optional<Work> coming{};      // while others' elements are on their way
  uint64_t used = 0, kernel = 0;     // when it was used last: counts uses, and kernels
  uint32_t version = 0;              // of the storage, when it held what the owners hold
  int64_t size() const { return stretch.end() - stretch.begin; }
  int64_t bytes() const { return size() * int64_t(size_of(dtype)); }
  Tensor all() const { return Tensor(memory.storage(), {size()}, dtype); }  // what is there, also before it is used
  Tensor part(Part part) const { return all().window({part.size()}, {1}, part.begin - stretch.begin); }
};

namespace {

// The kernels that it needs itself do not count: what another kernel is given stays in use.
struct Uncounted {
  const uint64_t before = kernel_calls;
  ~Uncounted() { kernel_calls = before; }
};

}  // namespace

ShardedBuffers::ShardedBuffers(ProcessGroup& group, bool keeps)
    : group_(group.split(0, group.rank())), keeps_(keeps) {}

size_t ShardedBuffers::add(std::vector<Stretch> stretches, const Tensor& own, DType dtype) {
  std::ranges::sort(stretches, {}, &Stretch::begin);
  int64_t before = 0;
  for (Stretch& s : stretches) {
    const int64_t mine = s.of(group_->rank()).size();
    auto piece = std::make_unique<Piece>(
        Piece{pieces_.size(), buffers_, s, own.window({mine}, {1}, before), dtype, nullptr});
    piece->storage = std::make_shared<Storage>(nullptr, size_t(piece->bytes()), own.device());
    piece->storage->set_arriving([this, p = piece.get()](size_t, size_t) { return use(*p); });
    pieces_.push_back(std::move(piece));
    before += mine;
  }
  return buffers_++;
}

ShardedBuffers::~ShardedBuffers() {
  for (const auto& piece : pieces_) {
    if (piece->coming && std::uncaught_exceptions() == 0) try {
        piece->coming->wait();
      } catch (const Error&) {  // the job has failed, and says so elsewhere
      }
    piece->storage->provide(nullptr);
    piece->storage->set_arriving([](size_t, size_t) -> bool {
      throw Error("weights that ranks held in parts are used after the end of the training");
    });
  }
}

Tensor ShardedBuffers::window(size_t buffer, const Shape& shape, int64_t begin) const {
  for (const auto& p : pieces_)
    if (p->buffer == buffer && p->stretch.begin <= begin && begin + shape.size() <= p->stretch.end())
      return Tensor(p->storage, {p->size()}, p->dtype)
          .window(shape, contiguous_strides(shape), begin - p->stretch.begin);
  throw ShapeError(concat("elements from ", begin, " on, ", shape, ": not within one stretch"));
}

// Always returns false: it may be dropped again.
bool ShardedBuffers::use(Piece& piece) {
  piece.kernel = kernel_calls;
  const auto began = Clock::now();
  if (!piece.memory.defined()) start(piece);
  piece.used = ++uses_;
  if (piece.coming) {
    wait(piece);
    totals_.exposed += Clock::now() - began;
  }
  if (piece.index == current_ || fetch_) return false;
  current_ = piece.index;
  round_.push_back(current_);
  gather_next();
  return false;
}

void ShardedBuffers::wait(Piece& piece) {
  if (!piece.coming) return;
  const Work work = *std::exchange(piece.coming, std::nullopt);  // waits once, also if it fails
  work.wait();
  totals_.communicating += work.span().end - work.span().begin;
}

void ShardedBuffers::provide(Piece& piece) {
  make_room();
  std::ranges::sort(spare_, {}, &Tensor::size);
  if (const auto fit = std::ranges::lower_bound(spare_, piece.bytes(), {}, &Tensor::size); fit != spare_.end()) {
    piece.memory = *fit;
    spare_.erase(fit);
  } else {
    if (!spare_.empty()) spare_.erase(spare_.begin());
    piece.memory = group_->allocate({piece.bytes()}, DType::u8);
  }
  piece.storage->provide(piece.memory.storage());
  piece.version = piece.storage->version();
}

void ShardedBuffers::start(Piece& piece) {
  const Uncounted uncounted;
  provide(piece);
  piece.used = ++uses_;
  const Tensor all = piece.all();
  if (fetch_) {
    const Tensor elements = fetch_(piece.buffer, {piece.stretch.begin, piece.stretch.end()});
    return copy(all, elements.device() == all.device() ? elements : elements.copy_to(all.device()));
  }
  if (announces_) agree(piece.index);
  copy(piece.part(piece.stretch.of(group_->rank())), piece.own);
  piece.coming = group_->all_gather(all, piece.stretch.cuts, piece.index + 1).start();
  totals_.bytes += piece.bytes();
}

// What followed the current piece in the last round is gathered meanwhile.
void ShardedBuffers::gather_next() {
  const auto begin = last_round_.begin(), end = last_round_.end();
  auto at = std::find(begin + std::ptrdiff_t(next_), end, current_);
  if (at == end) at = std::find(begin, end, current_);
  if (at == end || ++at == end) return;
  next_ = size_t(at - begin);
  if (Piece& next = *pieces_[*at]; !next.memory.defined()) start(next);
}

void ShardedBuffers::begin_round() {
  keep_writes();
  round_.clear();
  some_followed_ = false;
  leave_round();
}

// The next use may be any.
void ShardedBuffers::leave_round() { next_ = 0, current_ = kNone; }

void ShardedBuffers::keep_writes(Piece& piece) {
  if (!piece.memory.defined() || fetch_ || piece.version == piece.storage->version()) return;
  const Uncounted uncounted;
  copy(piece.own, piece.part(piece.stretch.of(group_->rank())));
  piece.version = piece.storage->version();
  for (const auto& other : pieces_)  // what else was gathered of the same elements
    if (other.get() != &piece && other->own.storage() == piece.own.storage() &&
        other->stretch.begin == piece.stretch.begin)
      release(*other);
}

void ShardedBuffers::keep_writes() {
  for (const auto& p : pieces_) keep_writes(*p);
}

// Drops the pieces that were used least recently, not those that the coming kernel has been given.
void ShardedBuffers::make_room() {
  if (keeps_ && !fetch_) return;
  for (;;) {
    Piece* oldest = nullptr;
    size_t gathered = 0;
    for (const auto& p : pieces_) {
      if (!p->memory.defined()) continue;
      ++gathered;
      const bool is_given = p->kernel == kernel_calls && (!fetch_ || p->used + kMostGathered > uses_);
      if (!is_given && (!oldest || p->used < oldest->used)) oldest = p.get();
    }
    if (gathered < kMostGathered || !oldest) return;
    release(*oldest);
  }
}

void ShardedBuffers::release(Piece& piece) {
  wait(piece);
  keep_writes(piece);
  piece.storage->provide(nullptr);
  const size_t most = keeps_ ? pieces_.size() : kMostGathered;
  if (piece.memory.defined() && spare_.size() < most) spare_.push_back(std::move(piece.memory));
  piece.memory = {};
}

void ShardedBuffers::drop() {
  for (const auto& p : pieces_) release(*p);
}

// Rank 0's piece. The others that announce one must mean the same.
size_t ShardedBuffers::agree(size_t piece) {
  Tensor word = from_host(std::vector<int64_t>{int64_t(piece)}, {1}, group_->transport().device());
  group_->broadcast(word, 0).wait();
  if (word.device() != Device{}) word = word.copy_to(Device{});
  group_->transport().context().failure->check();
  const auto agreed = size_t(word.data<int64_t>()[0]);
  RT_CHECK_AS(CommError, agreed == piece || !announces_, "rank ", group_->rank(),
              " uses the weights in another order than rank 0");
  return agreed;
}

void ShardedBuffers::announce(bool on) {
  if (!on) agree(kNone);
  announces_ = on, some_followed_ = true;
  if (on) return;
  drop();
  leave_round();
}

void ShardedBuffers::follow() {
  for (size_t i = agree(kNone); i != kNone; i = agree(kNone)) {
    RT_CHECK_AS(CommError, i < pieces_.size(), "rank 0 uses weights ", i, " of ", pieces_.size());
    release(*pieces_[i]);
    start(*pieces_[i]);
  }
  some_followed_ = true;
  drop();
  leave_round();
}

void ShardedBuffers::forget(bool next_round) {
  drop();
  for (const auto& p : pieces_) p->storage->written_by("an update of own elements");
  if (!next_round) return;
  if (!std::exchange(some_followed_, false)) last_round_ = round_;
  else round_.clear();
  const bool whole = !round_.empty();
  begin_round();
  if (whole) start(*pieces_[last_round_[0]]);
}

void ShardedBuffers::fetch_by(Fetch fetch) {
  drop();
  leave_round();
  fetch_ = std::move(fetch);
}

}  // namespace ringtape::comm
