#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/store/store.h"

namespace ringtape::comm {

// Holds a job's store, and answers clients that prove the token (token.h); one thread serves all. Other connections are
// closed and disturb nobody. If a client closes without goodbye, or is silent for `heartbeat`, its wills are executed.
class StoreServer {
 public:
  struct Options {
    std::string token;
    std::string name = "a process";  // the host's description, for the error messages of clients that lose the store
    std::string host = "127.0.0.1";  // where it listens; empty: on every interface
    int port = 0;                    // 0: any free port
    int listening = -1;              // a listening socket that is taken over, instead of host and port
    Seconds heartbeat{10};
    Seconds patience{5};  // time for a new connection to prove the token
  };
  explicit StoreServer(Options options);
  ~StoreServer();                      // waits until its clients have left, at most for `heartbeat`
  void stop_within(Seconds patience);  // the same, at most for `patience`: if some clients will not leave
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Connects to the store at `address`. Tries until the deadline, and after each failed attempt calls `waiting` with the
// reason; throws at once if the token is refused. When the connection is lost, every call throws, naming the host. A
// call without a deadline ends after `timeout`.
struct StoreAddress {
  std::string host;
  int port = 0;
  std::string token;
};
std::shared_ptr<Store> tcp_store(const StoreAddress& address, Deadline deadline, Seconds timeout = Seconds(60),
                                 const std::function<void(const std::string& why)>& waiting = {});

struct TokenRefused : CommError {
  using CommError::CommError;
};

}  // namespace ringtape::comm
