#pragma once
#include <atomic>
#include <cstring>

#include "comm/transport/header.h"

// The shared memory of the ranks of a host. Each rank owns one Board and, for every other rank, a Pipe with that rank's
// messages to it. Words that different ranks write are on different cache lines. All accesses are sequentially
// consistent: a rank that writes a word and finds its reader awake (Board::asleep) relies on the reader reading it once
// more before it sleeps.
namespace ringtape::comm {

inline constexpr size_t kLine = 64;
// Lock-free atomics also work between processes.
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// The argument of a rank's share() number `turn`.
struct alignas(kLine) Offer {
  std::atomic<uint64_t> turn;
  int64_t place;  // in its arena; -1: the buffer is not in the arena
  Operation operation;
};
static_assert(sizeof(Offer) == kLine);

struct Board {
  Offer offers[2];                                // used in turn: all have read one when all have come to the next
  alignas(kLine) std::atomic<uint64_t> arrivals;  // at fences
  alignas(kLine) std::atomic<uint32_t> left;      // 1: the rank has closed the group
  alignas(kLine) std::atomic<uint32_t> asleep;    // 1: it sleeps until the bell changes, or is about to sleep
  std::atomic<uint32_t> bell;
};

// A stream of bytes between two ranks: positions count from the beginning and only grow.
struct Pipe {
  static constexpr uint64_t kBytes = 256 << 10;  // small enough to stay in the caches of both ranks
  static constexpr uint64_t kChunk = 32 << 10;   // unit of transfer, so that both ends work at the same time
  alignas(kLine) std::atomic<uint64_t> put;      // by the sender
  std::atomic<uint32_t> gone;                    // 1: the sender has left and no longer reads the receiver's memory
  alignas(kLine) std::atomic<uint64_t> taken;    // by the receiver
  alignas(kLine) char data[kBytes];
};

// The sender's end.
class PipeIn {
 public:
  explicit PipeIn(Pipe& pipe) : pipe_(&pipe) {}
  uint64_t position() const { return put_; }
  bool taken(uint64_t position) { return taken_ >= position || (taken_ = pipe_->taken.load()) >= position; }
  bool put_header(const MessageHeader& header) {
    if (room() < sizeof header) return false;
    std::memcpy(pipe_->data + put_ % Pipe::kBytes, &header, sizeof header);
    put_ += sizeof header;
    return true;
  }
  // Copies as much as fits, at most one chunk; the end of a message is padded to a full cache line.
  size_t put(const char* data, size_t bytes) {
    const uint64_t at = put_ % Pipe::kBytes;
    const size_t n = std::min({bytes, size_t(room()), size_t(Pipe::kChunk), size_t(Pipe::kBytes - at)});
    std::memcpy(pipe_->data + at, data, n);
    put_ += (n + kLine - 1) / kLine * kLine;
    return n;
  }
  void publish() { pipe_->put.store(put_); }

 private:
  uint64_t room() {
    if (put_ - taken_ > Pipe::kBytes - Pipe::kChunk) taken_ = pipe_->taken.load();
    return Pipe::kBytes - (put_ - taken_);
  }
  Pipe* pipe_;
  uint64_t put_ = 0, taken_ = 0;
};

// The receiver's end.
class PipeOut {
 public:
  explicit PipeOut(Pipe& pipe) : pipe_(&pipe) {}
  bool take_header(MessageHeader& header) {
    if (there() < sizeof header) return false;
    std::memcpy(&header, pipe_->data + taken_ % Pipe::kBytes, sizeof header);
    taken_ += sizeof header;
    return true;
  }
  size_t take(char* data, size_t bytes) {
    const uint64_t at = taken_ % Pipe::kBytes;
    const size_t n = std::min({bytes, size_t(there()), size_t(Pipe::kChunk), size_t(Pipe::kBytes - at)});
    std::memcpy(data, pipe_->data + at, n);
    taken_ += (n + kLine - 1) / kLine * kLine;
    return n;
  }
  void publish() { pipe_->taken.store(taken_); }

 private:
  uint64_t there() {
    if (put_ - taken_ < Pipe::kChunk) put_ = pipe_->put.load();
    return put_ - taken_;
  }
  Pipe* pipe_;
  uint64_t taken_ = 0, put_ = 0;
};

}  // namespace ringtape::comm
