#include "train/io/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace ringtape {
namespace {

// What the handler of SIGBUS looks at: it may use neither locks nor memory of its own.
struct Mapped {
  std::atomic<uintptr_t> begin{0}, end{0};  // begin 0: free
  std::atomic<bool> failed{false};
};
std::array<Mapped, 64> mapped;
struct sigaction before;

uintptr_t page_bytes() {
  static const auto bytes = uintptr_t(::sysconf(_SC_PAGESIZE));
  return bytes;
}

extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const auto at = uintptr_t(info->si_addr);
  for (Mapped& file : mapped) {
    const uintptr_t begin = file.begin, end = file.end;
    if (begin == 0 || at < begin || at >= end) continue;
    file.failed = true;
    void* const from = reinterpret_cast<void*>(at / page_bytes() * page_bytes());  // all behind it: few such faults
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    const int error = errno;
    if (::mmap(from, end - uintptr_t(from), PROT_READ | PROT_WRITE, how, -1, 0) != MAP_FAILED) {
      errno = error;
      return;
    }
  }
  ::sigaction(SIGBUS, &before, nullptr);    // it is no affair of files, and happens again
  if (info->si_code <= 0) ::raise(SIGBUS);  // unless a process has sent it
}

size_t take_place(uint8_t* data, size_t bytes) {
  static const bool handles = [] {
    (void)page_bytes();
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return ::sigaction(SIGBUS, &action, &before) == 0;
  }();
  RT_CHECK(handles, "SIGBUS cannot be handled");
  for (size_t i = 0; i < mapped.size(); ++i) {
    uintptr_t free = 0;  // its end is 0, too
    if (!mapped[i].begin.compare_exchange_strong(free, uintptr_t(data))) continue;
    mapped[i].failed = false;
    mapped[i].end = uintptr_t(data) + bytes;
    return i;
  }
  detail::fail<IoError>({"more than ", mapped.size(), " mapped files"});
}

}  // namespace

MappedFile::MappedFile(std::string path, int fd, size_t bytes) : path_(std::move(path)), bytes_(bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) detail::fail<IoError>({path_, ": cannot map: ", std::generic_category().message(errno)});
  data_ = static_cast<uint8_t*>(at);
  try {
    place_ = take_place(data_, bytes);
  } catch (...) {
    ::munmap(at, bytes);
    throw;
  }
}

MappedFile::~MappedFile() {
  mapped[place_].end = 0;
  mapped[place_].begin = 0;
  ::munmap(data_, bytes_);
}

void MappedFile::check() const {
  RT_CHECK_AS(IoError, !mapped[place_].failed, path_,
              ": cannot be read any more: it has become shorter, or its disk fails");
}

void MappedFile::replace(size_t offset, const void* bytes, size_t size) {
  const uintptr_t begin = uintptr_t(data_ + offset) / page_bytes() * page_bytes(),
                  end = uintptr_t(data_ + offset + size);
  if (::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0)
    detail::fail<IoError>({path_, ": cannot change its memory: ", std::generic_category().message(errno)});
  std::memcpy(data_ + offset, bytes, size);
}

}  // namespace ringtape
