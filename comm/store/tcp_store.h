#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/store/store.h"

namespace ringtape::comm {

// Holds a job's store, and answers whoever proves that he holds the token (token.h); one thread
// serves all. Anybody else is dropped and disturbs nobody. A client that closes without goodbye, or
// says nothing for `heartbeat`, has its wills executed.
class StoreServer {
 public:
  struct Options {
    std::string token;
    std::string name = "a process";   // whose it is, for the messages of clients that lose it
    std::string host = "127.0.0.1";   // where it listens; empty: everywhere
    int port = 0;                     // 0: any that is free
    int listening = -1;               // a socket that listens already, taken over, in place of host and port
    Seconds heartbeat{10};
    Seconds patience{5};              // with a new connection, until it has proved itself
  };
  explicit StoreServer(Options options);
  ~StoreServer();                     // waits until its clients have left, for `heartbeat` at most
  void stop_within(Seconds patience);  // the same, for so long at most: where some will not come to it
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// The store that listens there. Tries until the deadline, and tells `waiting` each time why it has not come to
// anything; throws at once if the token is refused. When the connection is lost, every call throws, naming the host. A
// call that has no deadline ends after `timeout`.
struct StoreAddress {
  std::string host;
  int port = 0;
  std::string token;
};
std::shared_ptr<Store> tcp_store(const StoreAddress& address, Deadline deadline, Seconds timeout = Seconds(60),
                                 const std::function<void(const std::string& why)>& waiting = {});

struct TokenRefused : CommError { using CommError::CommError; };

}  // namespace ringtape::comm
