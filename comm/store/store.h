#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/base/deadline.h"
#include "core/check.h"

namespace ringtape::comm {

// Where the ranks of a job find each other: a few small values with names. Not for the data of training steps. If a
// call cannot succeed before its deadline, it throws a CommError that names the key. Thread-safe.
class Store {
 public:
  struct Entry {
    std::string key, value;
  };

  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Sets the key unless it is set; returns the value that it has then.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;  // nullopt: not set
  // One of the keys that is set; nullopt: none by the deadline.
  virtual std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // to a number that starts at 0; returns the sum
  virtual void erase(const std::string& key) = 0;                   // also if it is not set

  virtual std::string address() const { return ""; }  // of this process, as the store sees it; empty: no network

  // A message for the case that this process ends without leaving the store properly: then `key` is set once to `who`
  // and what happened to it. A store within one process does nothing, because nobody is left to read it.
  virtual void will(const std::string& key, const std::string& who) { (void)key, (void)who; }

  std::string wait(const std::string& key, Deadline deadline);  // until it is set
};

// The store's host has finished and closed the store.
struct StoreClosed : CommError {
  using CommError::CommError;
};

std::shared_ptr<Store> memory_store();  // for ranks of one process
// The keys under "prefix/" of another store.
std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix);

// A store in a folder that all ranks can access. The folder is created if it does not exist; otherwise only this user
// may have access to it (0700; else CommError). It may be on a network file system that supports locks (NFS 4). A
// killed process is noticed by its lock; a machine that fails is not noticed. The first process removes the remains of
// an earlier job, the last one removes everything.
std::shared_ptr<Store> file_store(const std::string& folder);

}  // namespace ringtape::comm
