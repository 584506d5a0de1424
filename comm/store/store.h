#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/base/deadline.h"
#include "core/check.h"

namespace ringtape::comm {

// Where the ranks of a job find each other: a few small values under names. Not for what a training step sends. Every
// call ends by its deadline with a CommError that names the key. Thread-safe.
class Store {
 public:
  struct Entry { std::string key, value; };

  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Unless it is set; what it is then.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;                  // nothing: not set
  // One that is set; nothing: none is.
  virtual std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // to a number that starts at 0; the new one
  virtual void erase(const std::string& key) = 0;                                      // whether it is there or not

  virtual std::string address() const { return ""; }  // this process's own, on its way to the store; empty: no network

  // What is to be known when this process goes without leaving the store as it should: `key` is set once to `who` and
  // what happened to it. A store within one process has nobody left to tell.
  virtual void will(const std::string& key, const std::string& who) { (void)key, (void)who; }

  std::string wait(const std::string& key, Deadline deadline);  // until it is set
};

// The store's host has finished and taken it away.
struct StoreClosed : CommError { using CommError::CommError; };

std::shared_ptr<Store> memory_store();                                           // for ranks of one process
// The keys under "prefix/" of another.
std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix);

// A folder that all ranks see, made if it is not there, else this user's alone (0700; CommError); on a network if that
// keeps locks (NFS 4). A killed process is noticed by its lock, a machine that is gone is not. The first to come
// removes what an earlier job left, the last all.
std::shared_ptr<Store> file_store(const std::string& folder);

}  // namespace ringtape::comm
