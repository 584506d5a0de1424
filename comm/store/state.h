#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/store/frame.h"

namespace ringtape::comm {

// The values of a store's server, and the waits of its clients. Knows no sockets: a client is a number, and messages
// for it go to `send`.
class StoreState {
 public:
  using Client = uint64_t;
  explicit StoreState(std::function<void(Client, const Frame&)> send) : send_(std::move(send)) {}

  void handle(Client client, const Frame& request);  // of a client that has proved the token
  // `what` happened to the client: executes its wills. Empty: it said goodbye, and its wills are dropped.
  void left(Client client, const std::string& what = "");

 private:
  using Waiting = std::pair<Client, uint32_t>;  // client, request
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
