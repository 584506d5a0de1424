#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/deadline.h"

namespace ringtape::comm {

// Where the ranks of a job find each other: a few small values under names. Not for what a training step sends. Every call
// ends by its deadline with a CommError that names the key. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;            // nothing: not set
  virtual std::string wait(const std::string& key, Deadline deadline) = 0;       // until it is set
  virtual int64_t add(const std::string& key, int64_t amount) = 0;               // to a number that starts at 0; the new one
  virtual void erase(const std::string& key) = 0;                                // whether it is there or not
  virtual std::string address() const { return ""; }  // of this process on its way to the store, without a port; empty: no network
};

std::shared_ptr<Store> memory_store();                                           // for ranks of one process
std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix);  // the keys under "prefix/" of another

}  // namespace ringtape::comm
