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

struct ClientLimits {
  size_t clients = 256;                 // connections
  size_t head = 16 << 10, body = 1024;  // bytes of a request
  size_t unread = 64 << 20;             // bytes of all requests that came and have no answer yet
  size_t unsent = 64 << 20;             // bytes of all answers
  size_t threads = 4;                   // that compute answers
  std::chrono::seconds patience{5};     // for a whole request, and for each part of an answer
};

// The connections to a server of HTTP. One thread reads the requests of all clients and sends all answers; some others
// compute an answer once its request is there as a whole. So a slow client costs no thread, and of memory at most its
// request and its answer. A request beyond a limit is refused with a line that says so; of too many clients, and too
// many bytes of all, those that have waited longest are left.
class Clients {
 public:
  // `answer` gets a whole request, its body behind its head, and is called by several threads. If it throws or gives
  // nothing, the client is told so. Throws IoError if the system lacks a file descriptor.
  explicit Clients(std::function<ClientAnswer(const std::string& request)> answer, const ClientLimits& limits = {});
  ~Clients();  // ends all connections
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  void add(comm::Fd socket);  // from any thread
  void finish();              // answers the requests that are there as a whole; then all connections have ended

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
  bool take_request(uint64_t number, Client& client);
  bool is_in_time(const Client& client) const;
  void ask(uint64_t number, std::string request);
  void leave_the_longest();
  void wake();
  void end(bool& how);

  const std::function<ClientAnswer(const std::string&)> answer_;
  const ClientLimits limits_;
  comm::Fd wakes_;
  All all_;  // these: of the serving thread
  uint64_t last_ = 0;
  bool finishing_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<comm::Fd> new_;
  std::vector<std::pair<uint64_t, ClientAnswer>> answered_;
  bool ends_ = false, finishes_ = false;
  std::unique_ptr<Workers> workers_;
  std::thread thread_;
};

}  // namespace ringtape
