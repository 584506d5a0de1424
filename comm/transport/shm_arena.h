#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ringtape::comm {

// Memory of this process that other processes of its user can map: a file without a name, so that nothing is left when
// the last process has ended, for whatever reason. It has one fixed place in the address space, and pages are allocated
// when they are touched. Thread-safe.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  static std::shared_ptr<SharedArena> own();  // the one arena of this process; lives while somebody holds it
  ~SharedArena();

  std::shared_ptr<char> allocate(size_t bytes);            // zeroed, 64-byte aligned; freed with the last pointer
  int64_t place_of(const void* data, size_t bytes) const;  // offset in the arena; -1: not in it
  char* base() const { return base_; }
  std::string address() const;  // for PeerArena::open

 private:
  SharedArena();
  void free(int64_t place, int64_t bytes);

  const pid_t pid_;
  const size_t bytes_;  // of address space
  const int fd_;
  char* base_ = nullptr;
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  // place -> bytes; adjacent blocks are merged
  int64_t end_ = 0;                  // end of the memory that was ever used; zeros after it
};

// The arena of another process in this one's address space.
class PeerArena {
 public:
  // From its address(). Throws CommError if that process has ended or belongs to another user.
  static std::shared_ptr<PeerArena> open(const std::string& address);
  ~PeerArena();
  char* base() const { return base_; }

 private:
  PeerArena(const std::string& path, size_t bytes, ino_t file);
  char* base_;
  const size_t bytes_;
};

}  // namespace ringtape::comm
