#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/parallel/shards.h"

namespace ringtape::comm {

// Flat buffers of which each rank holds its own elements only. A stretch of one has memory, and the elements of all
// ranks, from its first use through a tensor until other stretches are used: fully sharded data parallelism (Zhao et
// al., "PyTorch FSDP", 2023), whose units are the stretches. They are gathered ahead in the order of the last round.
//
// A use of what is not there is a collective: all ranks use the stretches in the same order, or give what they hold
// to those that do. Elements that are written through a window, the same on all ranks, become own ones.
class ShardedBuffers {
 public:
  // `keeps`: what has been gathered stays until forget(). `within`: so many consecutive ranks, as those of a machine,
  // together keep what has been gathered once, and until forget() gather it again from each other (hierarchical
  // partitioning: Wang et al., "ZeRO++", 2023); it divides the number of ranks. 0: they do not. The group must outlive
  // this, and this all use of the tensors.
  ShardedBuffers(ProcessGroup& group, bool keeps, int within = 0);
  ~ShardedBuffers();
  // Stretches that have memory at a time, unless it is kept: the last one, the one in use, the next one.
  static constexpr size_t kMaxGathered = 3;

  // One more buffer; returns its number, from 0. `own`: this rank's elements of all stretches, the first ones first;
  // the caller writes them, then calls forget(). They are gathered as `dtype`, as copy() converts them. `apart`: parts,
  // ascending, that are used all the time. Those that one rank holds are gathered together, by themselves, and stay
  // until forget().
  size_t add(std::vector<Stretch> stretches, const Tensor& own, DType dtype, const std::vector<Part>& apart = {});

  // Elements [begin, begin + shape.size()) of a buffer, which are within one stretch or part: a tensor without memory
  // until it is used.
  Tensor window(size_t buffer, const Shape& shape, int64_t begin) const;

  // Own elements have changed: what has been gathered is dropped. `next_round`: the uses since begin_round() are a
  // round; what the next one begins with is already gathered.
  void forget(bool next_round = false);
  void begin_round();
  void keep_writes();  // call it before own elements are changed

  // For a time in which only some ranks use the buffer, rank 0 among them: these say so by announce(true), and by
  // announce(false) at its end; the others follow() until then. What has been gathered is dropped at the end.
  void announce(bool on);
  void follow();

  // From now on a use is no collective: `fetch` returns own and others' elements [begin, end) of a buffer, on the host.
  // Empty: as before. What has been gathered is dropped.
  using Fetch = std::function<Tensor(size_t buffer, Part part)>;
  void fetch_by(Fetch fetch);

  struct Totals {
    int64_t bytes = 0;   // gathered, of all ranks, and used: the same wherever a training went on from
    int64_t within = 0;  // of these, from the ranks that are `within`
    Seconds communicating{0}, exposed{0};
  };
  const Totals& totals() const { return totals_; }
  int64_t kept_within() const;  // bytes of this rank

 private:
  struct Piece;
  Piece& add_piece(size_t buffer, const ProcessGroup::Cuts& cuts, DType dtype);
  void cut_near(Piece& piece) const;
  bool use(Piece& piece);
  void provide(Piece& piece);
  void start(Piece& piece);
  size_t agree(size_t piece);
  void drop();
  void make_room();
  void release(Piece& piece);
  void wait(Piece& piece);
  void keep_within(Piece& piece);
  void keep_writes(Piece& piece);
  void leave_round();
  void gather_next();

  std::unique_ptr<ProcessGroup> group_;       // of its own: gradients are on their way meanwhile, in another order
  const std::unique_ptr<ProcessGroup> near_;  // the ranks that are `within`; null: none
  const bool keeps_;
  std::vector<std::shared_ptr<Storage>> owns_;  // of the own elements of each buffer
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::vector<Tensor> spare_;  // memory to be used again: bytes
  static constexpr size_t kNone = size_t(-1);
  std::vector<size_t> round_, last_round_;  // the pieces in the order of their uses
  size_t next_ = 0;                         // of last_round_
  size_t current_ = kNone;                  // the piece in use
  uint64_t uses_ = 0, round_began_ = 0;
  bool announces_ = false, some_followed_ = false;  // in this round
  Fetch fetch_;
  Totals totals_;
};

}  // namespace ringtape::comm
