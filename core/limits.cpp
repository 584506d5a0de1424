#include "core/limits.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/cgroup.h"
#include "core/check.h"

namespace ringtape {
namespace {

rlimit before{};  // before raise_descriptor_limit()
bool raised = false;

std::string number_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

rlimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit;
}

int64_t open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return error ? 0 : int64_t(std::distance(begin(all), end(all))) - 1;  // minus the iterator's own
}

}  // namespace

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 1 << 20;  // containers may allow 2^30, and some programs iterate over all
  rlimit limit = limit_of(RLIMIT_NOFILE);
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return;
  if (!raised) before = limit;
  limit.rlim_cur = wanted;
  raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0 || raised;
}

void restore_descriptor_limit() {
  if (raised) ::setrlimit(RLIMIT_NOFILE, &before);
}

void raise_stack_limit() {
  constexpr rlim_t kLeast = 1 << 20, kEnough = 8 << 20;
  rlimit limit = limit_of(RLIMIT_STACK);
  if (limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  RT_CHECK_AS(Error, limit.rlim_cur >= kLeast, "a stack may have ", limit.rlim_cur >> 10, " KiB, ", kLeast >> 10,
              " are needed; raise the limit (ulimit -s ", kEnough >> 10, ")");
  ::setrlimit(RLIMIT_STACK, &limit);
  pthread_attr_t threads;  // whose size was set from the limit when the process started
  if (::pthread_getattr_default_np(&threads) != 0) return;
  ::pthread_attr_setstacksize(&threads, limit.rlim_cur);
  ::pthread_setattr_default_np(&threads);
  ::pthread_attr_destroy(&threads);
}

std::string lack_of_descriptors(int64_t more) {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  const int64_t open = open_descriptors();
  if (limit.rlim_cur == RLIM_INFINITY || open + more <= int64_t(limit.rlim_cur)) return "";
  return concat(more, " more file descriptors are needed (", open, " are open), but the limit is ",
                number_text(limit.rlim_cur), " (hard limit ", number_text(limit.rlim_max), "); raise it to ",
                open + more, " or more (ulimit -n)");
}

bool is_lack_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

std::string reason(int error) {
  const std::string text = std::strerror(error);
  if (error == EMFILE)
    return concat(text, "; the limit of this process is ", number_text(limit_of(RLIMIT_NOFILE).rlim_cur),
                  " (ulimit -n raises it)");
  return error == ENFILE ? text + "; the limit of this machine is in /proc/sys/fs/file-max" : text;
}

std::string process_reason(int error) {
  std::string out = reason(error);
  if (error != EAGAIN) return out;
  out += concat("; the limit of processes and threads is ", number_text(limit_of(RLIMIT_NPROC).rlim_cur),
                " for this user (ulimit -u)");
  if (const auto processes = Cgroups().processes())
    out += concat(", ", *processes, " for its control group (pids.max)");
  return out;
}

// Why a thread's stack has no room in this process's address space; empty: it has.
static std::string lack_of_address_space() {
  const rlimit limit = limit_of(RLIMIT_AS), stack = limit_of(RLIMIT_STACK);
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t used = pages * rlim_t(::sysconf(_SC_PAGESIZE));
  if (limit.rlim_cur == RLIM_INFINITY || stack.rlim_cur == RLIM_INFINITY || used + stack.rlim_cur <= limit.rlim_cur)
    return "";
  return concat("its stack needs ", stack.rlim_cur >> 20, " MiB of address space, of which this process has taken ",
                used >> 20, " MiB, and its limit is ", limit.rlim_cur >> 20, " MiB (ulimit -v)");
}

void fail_to_start_thread(const char* what, int error) {
  if (const std::string lack = lack_of_address_space(); error == EAGAIN && !lack.empty())
    detail::fail<OutOfMemory>({"cannot start a thread (", what, "): ", lack});
  detail::fail<Error>({"cannot start a thread (", what, "): pthread_create: ", process_reason(error)});
}

}  // namespace ringtape
