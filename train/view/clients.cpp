#include "train/view/clients.h"

#include <httplib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/check.h"

namespace ringtape {

using Clock = std::chrono::steady_clock;

static constexpr size_t kThreads = 4;
static std::string refusal(const char* status) {
  return concat("HTTP/1.1 ", status, "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

struct Clients::Workers {
  httplib::ThreadPool pool{kThreads};
};

struct Clients::Client {
  comm::Fd socket;
  std::string in = {}, out = {};           // what came, and what is to be sent
  size_t sent = 0;                         // of `out`
  bool waits = false;                      // for its answer
  bool keep = false;                       // after `out`
  Clock::time_point since = Clock::now();  // when it was connected, or did what was expected of it last
};

Clients::Clients(std::function<ClientAnswer(const std::string&)> answer, std::chrono::seconds patience)
    : answer_(std::move(answer)), patience_(patience), wakes_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  RT_CHECK_AS(IoError, wakes_, "cannot serve: ", std::generic_category().message(errno));
  workers_ = std::make_unique<Workers>();
  thread_ = std::thread([this] { serve(); });
}

Clients::~Clients() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
  workers_->pool.shutdown();
}

void Clients::wake() { (void)!::eventfd_write(wakes_.get(), 1); }

void Clients::add(comm::Fd socket) {
  {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(socket));
  }
  wake();
}

void Clients::serve() {
  for (;;) {
    const std::vector<pollfd> ready = wait();
    take_news();
    if (const std::lock_guard lock(mutex_); ends_) return;
    for (auto at = all_.begin(); at != all_.end();) {
      auto& [number, client] = *at;
      const auto found = std::ranges::find(ready, client.socket.get(), &pollfd::fd);
      const bool is_ready = found != ready.end() && found->revents != 0;
      const bool stays = client.waits || (is_ready ? go_on(number, client) : Clock::now() - client.since < patience_);
      at = stays ? std::next(at) : all_.erase(at);
    }
    leave_the_longest();
  }
}

// Waits until a client does something, or something is to be done for one.
std::vector<pollfd> Clients::wait() {
  constexpr int kMilliseconds = 500;
  std::vector<pollfd> out{{wakes_.get(), POLLIN, 0}};
  for (const auto& [number, client] : all_)
    if (!client.waits) out.push_back({client.socket.get(), short(client.out.empty() ? POLLIN : POLLOUT), 0});
  ::poll(out.data(), out.size(), all_.empty() ? -1 : kMilliseconds);
  eventfd_t count = 0;
  (void)!::eventfd_read(wakes_.get(), &count);
  return out;
}

void Clients::take_news() {
  const std::lock_guard lock(mutex_);
  for (comm::Fd& socket : new_) all_.emplace(++last_, Client{.socket = std::move(socket)});
  new_.clear();
  for (auto& [number, answer] : answered_) {
    Client& client = all_.at(number);
    client.out = std::move(answer.text), client.sent = 0, client.keep = answer.keep, client.waits = false;
    client.since = Clock::now();
  }
  answered_.clear();
}

bool Clients::go_on(uint64_t number, Client& client) {
  return client.out.empty() ? read_from(number, client) : write_to(number, client);
}

bool Clients::read_from(uint64_t number, Client& client) {
  char part[4096];
  const ssize_t got = ::recv(client.socket.get(), part, sizeof part, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  client.in.append(part, size_t(got));
  return got > 0 && ask_for(number, client);
}

bool Clients::write_to(uint64_t number, Client& client) {
  const ssize_t done = ::send(client.socket.get(), client.out.data() + client.sent, client.out.size() - client.sent,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (done < 0) return errno == EAGAIN || errno == EINTR;
  client.sent += size_t(done), client.since = Clock::now();
  if (client.sent < client.out.size()) return true;
  client.out = {};
  return client.keep && ask_for(number, client);
}

// Has the request answered if it is there as a whole.
bool Clients::ask_for(uint64_t number, Client& client) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = client.in.find(kEnd);
  if (end == std::string::npos && client.in.size() <= kMaxRequest) return Clock::now() - client.since < patience_;
  if (end == std::string::npos) {
    client.out = refusal("431 Request Header Fields Too Large"), client.sent = 0, client.keep = false;
    return true;
  }
  std::string head = client.in.substr(0, end + kEnd.size());
  client.in.erase(0, head.size());
  client.waits = true;
  workers_->pool.enqueue([this, number, head = std::move(head)] {
    ClientAnswer answer;
    try {
      answer = answer_(head);
    } catch (const std::exception&) {  // no memory
    }
    if (answer.text.empty()) answer = {.text = refusal("500 Internal Server Error")};
    {
      const std::lock_guard lock(mutex_);
      answered_.emplace_back(number, std::move(answer));
    }
    wake();
  });
  return true;
}

// Ends the connections that have waited longest, while there are too many or their answers too long.
void Clients::leave_the_longest() {
  size_t unsent = 0;
  for (const auto& [number, client] : all_) unsent += client.out.size();
  while (all_.size() > kMaxClients || unsent > kMaxUnsent) {
    const bool many = all_.size() > kMaxClients;
    auto longest = all_.end();
    for (auto at = all_.begin(); at != all_.end(); ++at)
      if (const Client& c = at->second; !c.waits && (many || !c.out.empty()))
        if (longest == all_.end() || c.since < longest->second.since) longest = at;
    if (longest == all_.end()) return;
    unsent -= longest->second.out.size();
    all_.erase(longest);
  }
}

}  // namespace ringtape
