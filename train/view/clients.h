#pragma once
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/fd.h"

namespace ringtape {

// What a client is answered, and whether its connection may be used again.
struct ClientAnswer {
  std::string text;
  bool keep = false;
};

// The connections to a server. One thread reads the requests of all clients and sends all answers; some others compute
// an answer once its request is there as a whole. So a slow client costs no thread, and of memory at most kMaxRequest
// bytes and its answer. It has `patience` for a whole request, and as long for each part of an answer. Of more than
// kMaxClients, and of more than kMaxUnsent bytes of answers, those that have waited longest are left.
class Clients {
 public:
  static constexpr size_t kMaxRequest = 16 << 10, kMaxClients = 256, kMaxUnsent = 64 << 20;

  // `answer` gets the head of a request, with its empty line, and is called by several threads. If it throws or gives
  // nothing, the client is told so. Throws IoError if the system lacks a file descriptor.
  explicit Clients(std::function<ClientAnswer(const std::string& head)> answer,
                   std::chrono::seconds patience = std::chrono::seconds(5));
  ~Clients();  // ends all connections
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  void add(comm::Fd socket);  // from any thread

 private:
  struct Workers;
  struct Client;
  using All = std::map<uint64_t, Client>;

  void serve();
  std::vector<pollfd> wait();
  void take_news();
  bool go_on(uint64_t number, Client& client);  // these: whether the connection stays
  bool read_from(uint64_t number, Client& client);
  bool write_to(uint64_t number, Client& client);
  bool ask_for(uint64_t number, Client& client);
  void leave_the_longest();
  void wake();

  const std::function<ClientAnswer(const std::string&)> answer_;
  const std::chrono::seconds patience_;
  comm::Fd wakes_;
  All all_;  // of the serving thread
  uint64_t last_ = 0;
  std::mutex mutex_;  // of what follows
  std::vector<comm::Fd> new_;
  std::vector<std::pair<uint64_t, ClientAnswer>> answered_;
  bool ends_ = false;
  std::unique_ptr<Workers> workers_;
  std::thread thread_;
};

}  // namespace ringtape
