#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/store/frame.h"

namespace ringtape::comm {

// What a store's server holds, and who waits for what. Knows no sockets: a client is a number,
// and what it is to be told goes to `send`.
class StoreState {
 public:
  using Client = uint64_t;
  explicit StoreState(std::function<void(Client, const Frame&)> send) : send_(std::move(send)) {}

  void handle(Client client, const Frame& request);       // one that has proved itself
  // What happened to it: executes its wills; empty: it said goodbye.
  void left(Client client, const std::string& what = "");

 private:
  using Waiting = std::pair<Client, uint32_t>;  // whose, which request
  void set(const std::string& key, const std::string& value);
  void wait(const Waiting& waiting, const std::vector<std::string>& keys);
  void forget(const Waiting& waiting);

  const std::function<void(Client, const Frame&)> send_;
  std::map<std::string, std::string> values_;
  std::map<Waiting, std::vector<std::string>> waits_;
  std::multimap<std::string, Waiting> waiters_;  // the same by key
  std::map<Client, std::vector<std::pair<std::string, std::string>>> wills_;
};

}  // namespace ringtape::comm
