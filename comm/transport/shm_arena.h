#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ringtape::comm {

// Memory of this process that other processes of its user can map: a file without a name, so that
// nothing is left when the last of them is gone, however it went. Its pages come into being as they
// are touched, at one place in the address space. Thread-safe.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  static std::shared_ptr<SharedArena> own();  // of this process: one, while anybody holds it
  ~SharedArena();

  std::shared_ptr<char> allocate(size_t bytes);               // zeroed, 64-byte aligned; freed with the last pointer
  int64_t place_of(const void* data, size_t bytes) const;     // from the arena's beginning; -1: not in it
  char* base() const { return base_; }
  std::string address() const;                                // for PeerArena::open

 private:
  SharedArena();
  void free(int64_t place, int64_t bytes);

  const pid_t pid_;
  const size_t bytes_;  // of address space
  const int fd_;
  char* base_ = nullptr;
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  // place -> bytes, never two that touch
  int64_t end_ = 0;                  // of what was ever used; zeros lie behind it
};

// Another process's arena in this one's address space.
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
