#include "comm/parallel/sharded_buffers.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/copy.h"
#include "kernels/kernel.h"

namespace ringtape::comm {

struct ShardedBuffers::Piece {
  size_t index, buffer;
  ProcessGroup::Cuts cuts;
  DType dtype;                       // as which its elements are gathered
  std::shared_ptr<Storage> storage;  // of the windows
  bool apart = false;
  struct Run {  // of elements that follow one another, from `at` on in the piece
    int64_t at;
    Part elements;  // of the buffer
  };
  std::vector<Run> runs{};  // all elements
  struct Own {
    int64_t at;
    Tensor elements;
  };
  std::vector<Own> own{};          // this rank's, without those that are apart
  ProcessGroup::Cuts near_cuts{};  // among the ranks that are `within`; null: it is not kept there
  Part near_part{};                // this rank's
  Tensor near{};                   // its elements
  bool is_near = false;            // they are there
  Tensor memory{};                 // bytes; undefined: it has none
  std::optional<Work> coming{};    // while others' elements are on their way
  uint64_t used = 0, kernel = 0;   // when it was used last: counts uses, and kernels
  uint32_t version = 0;            // of the storage, when own elements last had all that was written
  int64_t size() const { return cuts->back(); }
  int64_t bytes() const { return size() * int64_t(size_of(dtype)); }
  // What is there, also before it is used.
  Tensor part(int64_t at, int64_t count) const {
    return Tensor(memory.storage(), {size()}, dtype).window({count}, {1}, at);
  }
};

namespace {

// The kernels that it needs itself do not count: what another kernel is given stays in use.
struct Uncounted {
  const uint64_t before = kernel_calls;
  ~Uncounted() { kernel_calls = before; }
};

}  // namespace

ShardedBuffers::ShardedBuffers(ProcessGroup& group, bool keeps, int within)
    : group_(group.split(0, group.rank())),
      near_(keeps || within <= 1 || within == group.size() ? nullptr
                                                           : group.split(group.rank() / within, group.rank())),
      keeps_(keeps || within == 1) {
  RT_CHECK_AS(UsageError, within == 0 || (within > 0 && group.size() % within == 0), "ShardedBuffers: ", within,
              " ranks that keep what was gathered do not divide ", group.size());
}

ShardedBuffers::Piece& ShardedBuffers::add_piece(size_t buffer, const ProcessGroup::Cuts& cuts, DType dtype) {
  auto piece = std::make_unique<Piece>(Piece{pieces_.size(), buffer, cuts, dtype, nullptr});
  piece->storage = std::make_shared<Storage>(nullptr, size_t(piece->bytes()), group_->transport().device());
  piece->storage->set_arriving([this, p = piece.get()](size_t, size_t) { return use(*p); });
  return *pieces_.emplace_back(std::move(piece));
}

// Of all ranks' parts, so many consecutive ones to each rank that is `within`.
void ShardedBuffers::cut_near(Piece& piece) const {
  std::vector<int64_t> cuts;
  for (int i = 0; i <= near_->size(); ++i)
    cuts.push_back((*piece.cuts)[size_t(i) * size_t(group_->size() / near_->size())]);
  piece.near_part = {cuts[size_t(near_->rank())], cuts[size_t(near_->rank()) + 1]};
  piece.near_cuts = std::make_shared<const std::vector<int64_t>>(std::move(cuts));
  piece.near = Tensor({piece.near_part.size()}, piece.dtype, group_->transport().device());
}

size_t ShardedBuffers::add(std::vector<Stretch> stretches, const Tensor& own, DType dtype,
                           const std::vector<Part>& apart) {
  std::ranges::sort(stretches, {}, &Stretch::begin);
  std::vector<int64_t> cuts = {0};  // of what is apart
  std::vector<Piece::Run> runs;
  std::vector<Piece::Own> mine;
  for (int rank = 0; rank < group_->size(); ++rank) {
    int64_t at = cuts.back();
    for (const Stretch& s : stretches)
      for (const Part& part : apart)
        if (s.of(rank).begin <= part.begin && part.end <= s.of(rank).end) {
          runs.push_back({at, part});
          at += part.size();
        }
    cuts.push_back(at);
  }
  int64_t held = 0;  // elements of `own` before
  for (const Stretch& s : stretches) {
    Piece& piece = add_piece(owns_.size(), s.cuts, dtype);
    piece.runs = {{0, {s.begin, s.end()}}};
    if (near_) cut_near(piece);
    const Part all = s.of(group_->rank());
    const auto elements = [&](Part part) { return own.window({part.size()}, {1}, held + part.begin - all.begin); };
    int64_t from = all.begin;
    for (const Piece::Run& run : runs) {
      const Part& part = run.elements;
      if (part.begin < all.begin || part.end > all.end) continue;
      if (from < part.begin) piece.own.push_back({from - s.begin, elements({from, part.begin})});
      mine.push_back({run.at, elements(part)});
      from = part.end;
    }
    if (from < all.end) piece.own.push_back({from - s.begin, elements({from, all.end})});
    held += all.size();
  }
  if (!runs.empty()) {
    Piece& piece = add_piece(owns_.size(), std::make_shared<const std::vector<int64_t>>(std::move(cuts)), dtype);
    piece.apart = true, piece.runs = std::move(runs), piece.own = std::move(mine);
  }
  for (const auto& p : pieces_)  // the other dtype is the usual one from now on
    if (p->buffer < owns_.size() && owns_[p->buffer] == own.storage()) p->near = {};
  owns_.push_back(own.storage());
  return owns_.size() - 1;
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
  for (const bool apart : {true, false})
    for (const auto& p : pieces_)
      for (const Piece::Run& run : p->runs)
        if (p->buffer == buffer && p->apart == apart && run.elements.begin <= begin &&
            begin + shape.size() <= run.elements.end)
          return Tensor(p->storage, {p->size()}, p->dtype)
              .window(shape, contiguous_strides(shape), run.at + begin - run.elements.begin);
  throw ShapeError(concat("elements from ", begin, " on, ", shape, ": not within one stretch"));
}

// Always returns false: it may be dropped again.
bool ShardedBuffers::use(Piece& piece) {
  piece.kernel = kernel_calls;
  const auto began = Clock::now();
  if (!piece.memory.defined()) start(piece);
  piece.used = ++uses_;
  if (piece.coming) {
    totals_.bytes += piece.bytes();
    if (piece.is_near) totals_.within += piece.bytes();
    wait(piece);
    totals_.exposed += Clock::now() - began;
  }
  if (piece.index == current_ || piece.apart || fetch_) return false;
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
  if (near_ && !piece.is_near) keep_within(piece);
}

void ShardedBuffers::keep_within(Piece& piece) {
  if (!piece.near_cuts) return;
  const Uncounted uncounted;
  const Part part = piece.near_part;
  if (!piece.near.defined()) piece.near = Tensor({part.size()}, piece.dtype, group_->transport().device());
  copy(piece.near, piece.part(part.begin, part.size()));
  piece.is_near = true;
}

int64_t ShardedBuffers::kept_within() const {
  int64_t bytes = 0;
  for (const auto& p : pieces_)
    if (p->near.defined()) bytes += p->near.size() * int64_t(size_of(p->dtype));
  return bytes;
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
}

void ShardedBuffers::start(Piece& piece) {
  const Uncounted uncounted;
  provide(piece);
  piece.used = ++uses_;
  if (fetch_) {
    for (const Piece::Run& run : piece.runs) {
      const Tensor to = piece.part(run.at, run.elements.size()), from = fetch_(piece.buffer, run.elements);
      copy(to, from.device() == to.device() ? from : from.copy_to(to.device()));
    }
    return;
  }
  if (announces_) agree(piece.index);
  const Tensor all = piece.part(0, piece.size());
  if (piece.is_near) {
    copy(piece.part(piece.near_part.begin, piece.near_part.size()), piece.near);
    piece.coming = near_->all_gather(all, piece.near_cuts, piece.index + 1).start();
    return;
  }
  for (const Piece::Own& own : piece.own) copy(piece.part(own.at, own.elements.size()), own.elements);
  piece.coming = group_->all_gather(all, piece.cuts, piece.index + 1).start();
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
  round_began_ = uses_;
  some_followed_ = false;
  leave_round();
}

// The next use may be any.
void ShardedBuffers::leave_round() { next_ = 0, current_ = kNone; }

// A write is counted before it happens, maybe before the piece has memory: so it stays counted here.
void ShardedBuffers::keep_writes(Piece& piece) {
  if (!piece.memory.defined() || fetch_ || piece.version == piece.storage->version()) return;
  const Uncounted uncounted;
  for (const Piece::Own& own : piece.own) copy(own.elements, piece.part(own.at, own.elements.size()));
  if (piece.is_near) keep_within(piece);
  for (const auto& other : pieces_)  // what was gathered of the same elements in another dtype
    if (other->buffer != piece.buffer && owns_[other->buffer] == owns_[piece.buffer])
      release(*other), other->is_near = false;
}

void ShardedBuffers::keep_writes() {
  for (const auto& p : pieces_) {
    keep_writes(*p);
    p->version = p->storage->version();
  }
}

// Drops the pieces that were used least recently, not those that the coming kernel has been given.
void ShardedBuffers::make_room() {
  if (keeps_ && !fetch_) return;
  for (;;) {
    Piece* oldest = nullptr;
    size_t gathered = 0;
    for (const auto& p : pieces_) {
      if (!p->memory.defined() || p->apart) continue;
      ++gathered;
      const bool is_given = p->kernel == kernel_calls && (!fetch_ || p->used + kMaxGathered > uses_);
      if (!is_given && (!oldest || p->used < oldest->used)) oldest = p.get();
    }
    if (gathered < kMaxGathered || !oldest) return;
    release(*oldest);
  }
}

void ShardedBuffers::release(Piece& piece) {
  wait(piece);
  keep_writes(piece);
  piece.storage->provide(nullptr);
  const size_t most = keeps_ ? pieces_.size() : kMaxGathered;
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
  for (const auto& p : pieces_) {
    p->storage->written_by("an update of own elements");
    p->version = p->storage->version();
    p->is_near = false;
  }
  if (!next_round) return;
  const uint64_t began = round_began_;
  if (!std::exchange(some_followed_, false)) last_round_ = round_;
  else round_.clear();
  const bool whole = !round_.empty();
  begin_round();
  if (!whole) return;
  for (const auto& p : pieces_)
    if (p->apart && p->used > began) start(*p);
  start(*pieces_[last_round_[0]]);
}

void ShardedBuffers::fetch_by(Fetch fetch) {
  drop();
  leave_round();
  fetch_ = std::move(fetch);
}

}  // namespace ringtape::comm
