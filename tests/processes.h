#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "comm/transport.h"

// Ranks that are processes, for tests: forked, with a store in memory that they share and that needs nothing but it.
namespace ringtape::test {

struct Page {
  static constexpr size_t kEntries = 256, kRanks = 16;
  struct Entry {
    char key[64], value[184];
    bool set;
  };
  std::atomic<uint32_t> locked;
  Entry entries[kEntries];
  char errors[kRanks][1024];
};

inline Page* map_page(int fd) {
  void* const data = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  RT_CHECK(data != MAP_FAILED);
  return static_cast<Page*>(data);
}

// Nobody may be killed inside a call.
class PageStore : public comm::Store {
 public:
  explicit PageStore(Page* page) : page_(page) {}
  void set(const std::string& key, const std::string& value) override {
    locked([&] { write(key, value); });
  }
  std::optional<std::string> get(const std::string& key) override {
    std::optional<std::string> out;
    locked([&] {
      if (const Page::Entry* e = find(key)) out = e->value;
    });
    return out;
  }
  std::string wait(const std::string& key, comm::Deadline deadline) override {
    for (;;) {
      if (const auto value = get(key)) return *value;
      RT_CHECK_AS(CommError, !deadline.passed(), "store: no rank has set '", key, "' by the deadline");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  int64_t add(const std::string& key, int64_t amount) override {
    int64_t sum = amount;
    locked([&] {
      if (const Page::Entry* e = find(key)) sum += std::stoll(e->value);
      write(key, std::to_string(sum));
    });
    return sum;
  }
  void erase(const std::string& key) override {
    locked([&] {
      if (Page::Entry* e = find(key)) e->set = false;
    });
  }

 private:
  template <class F>
  void locked(F&& f) {
    while (page_->locked.exchange(1)) std::this_thread::yield();
    f();
    page_->locked = 0;
  }
  Page::Entry* find(const std::string& key) {
    for (Page::Entry& e : page_->entries)
      if (e.set && key == e.key) return &e;
    return nullptr;
  }
  void write(const std::string& key, const std::string& value) {
    Page::Entry* entry = find(key);
    for (size_t i = 0; !entry && i < Page::kEntries; ++i)
      if (!page_->entries[i].set) entry = &page_->entries[i];
    RT_CHECK(entry && key.size() < sizeof entry->key && value.size() < sizeof entry->value);
    std::strcpy(entry->key, key.c_str());
    std::strcpy(entry->value, value.c_str());
    entry->set = true;
  }
  Page* const page_;
};

struct Ended {
  int status = 0;     // of waitpid
  std::string error;  // what the rank threw
};

// Forks n ranks that call f(context), and waits for all; `meanwhile`, if given, runs in the parent with their process ids. A rank ends with
// 0, with 1 if a check failed in it, with 2 if it threw.
inline std::vector<Ended> run_processes(int n, comm::Seconds timeout, const std::function<void(const comm::Context&)>& f,
                                        const std::function<void(const std::vector<pid_t>&)>& meanwhile = nullptr) {
  Page* const page = map_page(-1);
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int r = 0; r < n; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int code = 0;
      try {
        f({r, n, std::make_shared<PageStore>(page), std::make_shared<comm::Failure>(), timeout});
      } catch (const std::exception& e) {
        std::strncpy(page->errors[r], e.what(), sizeof page->errors[r] - 1);
        code = 2;
      }
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : code);
    }
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);
  std::vector<Ended> out(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(::waitpid(pids[size_t(r)], &out[size_t(r)].status, 0), pids[size_t(r)]);
    out[size_t(r)].error = page->errors[r];
  }
  ::munmap(page, sizeof(Page));
  return out;
}

// The same, where all must end well.
inline void on_processes(int n, const std::function<void(const comm::Context&)>& f) {
  const std::vector<Ended> ends = run_processes(n, comm::Seconds(60), f);
  for (size_t r = 0; r < ends.size(); ++r) EXPECT_EQ(ends[r].status, 0) << "rank " << r << ": " << ends[r].error;
}

}  // namespace ringtape::test
