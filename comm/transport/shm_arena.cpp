#include "comm/transport/shm_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "core/check.h"

namespace ringtape::comm {

namespace {

constexpr int64_t kCacheLine = 64, kPage = 4096, kHugePage = 2 << 20;

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// As much address space as the machine has memory, but so little that a thousand ranks can map each other.
size_t arena_bytes() {
  const int64_t memory = int64_t(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return size_t(rounded_up(std::clamp<int64_t>(memory, int64_t(1) << 30, int64_t(1) << 36), kHugePage));
}

ino_t inode_of(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 ? file.st_ino : 0;
}

char* map(int fd, size_t bytes) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  RT_CHECK_AS(CommError, base != MAP_FAILED, "shm: cannot map ", bytes >> 20,
              " MiB of address space: ", std::strerror(errno),
              "; lift the limit (ulimit -v unlimited) or use the tcp transport");
  ::madvise(base, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(base);
}

}  // namespace

std::shared_ptr<SharedArena> SharedArena::own() {
  static std::mutex mutex;
  static std::weak_ptr<SharedArena> arena;
  const std::lock_guard lock(mutex);
  std::shared_ptr<SharedArena> known = arena.lock();
  // a forked child does not use its parent's arena.
  if (!known || known->pid_ != ::getpid()) arena = known = std::shared_ptr<SharedArena>(new SharedArena());
  return known;
}

SharedArena::SharedArena() : pid_(::getpid()), bytes_(arena_bytes()), fd_(::memfd_create("ringtape", MFD_CLOEXEC)) {
  RT_CHECK_AS(CommError, fd_ >= 0, "shm: cannot make shared memory: ", std::strerror(errno));
  base_ = map(fd_, bytes_);
}

SharedArena::~SharedArena() {
  ::munmap(base_, bytes_);
  ::close(fd_);
}

std::string SharedArena::address() const {
  return concat("/proc/", pid_, "/fd/", fd_, " ", bytes_, " ", inode_of(fd_));
}

int64_t SharedArena::place_of(const void* data, size_t bytes) const {
  const char* const at = static_cast<const char*>(data);
  return at >= base_ && at + bytes <= base_ + bytes_ ? at - base_ : -1;
}

// First fit. Large blocks begin at a huge page, others at a cache line.
std::shared_ptr<char> SharedArena::allocate(size_t bytes) {
  const int64_t wanted =
      rounded_up(std::max<int64_t>(int64_t(bytes), 1), int64_t(bytes) >= kHugePage ? kPage : kCacheLine);
  const int64_t align = int64_t(bytes) >= kHugePage ? kHugePage : kCacheLine;
  const std::lock_guard lock(mutex_);
  auto fit = free_.begin();
  while (fit != free_.end() && rounded_up(fit->first, align) + wanted > fit->first + fit->second) ++fit;
  int64_t place = rounded_up(end_, align);
  if (fit != free_.end()) {
    const auto [begin, size] = *fit;
    place = rounded_up(begin, align);
    free_.erase(fit);
    if (place > begin) free_[begin] = place - begin;
    if (begin + size > place + wanted) free_[place + wanted] = begin + size - place - wanted;
    std::memset(base_ + place, 0, size_t(wanted));
  } else {
    RT_CHECK_AS(OutOfMemory, size_t(place + wanted) <= bytes_, "shm: ", bytes, " bytes do not fit into the ",
                bytes_ >> 20, " MiB of this process's arena");
    RT_CHECK_AS(OutOfMemory, ::ftruncate(fd_, rounded_up(place + wanted, kPage)) == 0,
                "shm: cannot extend shared memory by ", bytes, " bytes: ", std::strerror(errno));
    if (place > end_) free_[end_] = place - end_;
    end_ = place + wanted;
  }
  return {base_ + place, [arena = shared_from_this(), place, wanted](char*) { arena->free(place, wanted); }};
}

void SharedArena::free(int64_t place, int64_t bytes) {
  if (pid_ != ::getpid()) return;
  const std::lock_guard lock(mutex_);
  // Returns the pages to the system.
  if (bytes >= kHugePage) ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, bytes);
  const auto after = free_.upper_bound(place);
  if (after != free_.end() && after->first == place + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto behind = free_.upper_bound(place);
  if (behind != free_.begin() && std::prev(behind)->first + std::prev(behind)->second == place)
    std::prev(behind)->second += bytes;
  else free_[place] = bytes;
}

std::shared_ptr<PeerArena> PeerArena::open(const std::string& address) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<PeerArena>> known_peers;
  std::istringstream in(address);
  std::string path;
  size_t bytes = 0;
  ino_t file = 0;
  RT_CHECK_AS(CommError, in >> path >> bytes >> file, "shm: '", address, "' is not an address of shared memory");
  const std::lock_guard lock(mutex);
  std::erase_if(known_peers, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<PeerArena>& known = known_peers[address];
  std::shared_ptr<PeerArena> peer = known.lock();
  if (!peer) known = peer = std::shared_ptr<PeerArena>(new PeerArena(path, bytes, file));
  return peer;
}

PeerArena::PeerArena(const std::string& path, size_t bytes, ino_t file) : bytes_(bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  RT_CHECK_AS(CommError, fd >= 0, "shm: cannot open the shared memory ", path,
              " of another rank: ", std::strerror(errno),
              "; its process has ended, or runs as another user (then use the tcp transport)");
  const bool same = inode_of(fd) == file;
  base_ = same ? map(fd, bytes) : nullptr;
  ::close(fd);
  RT_CHECK_AS(CommError, same, "shm: ", path,
              " is no longer the shared memory that its rank announced; its process has ended");
}

PeerArena::~PeerArena() { ::munmap(base_, bytes_); }

}  // namespace ringtape::comm
