#include "train/http/clients.h"

#include <httplib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/check.h"
#include "train/http/request_size.h"

namespace ringtape {

using Clock = std::chrono::steady_clock;

// An answer without the server: "413 Content Too Large".
static std::string refusal(const std::string& status, const std::string& reason) {
  return concat("HTTP/1.1 ", status, "\r\nContent-Type: text/plain\r\nContent-Length: ", reason.size() + 1,
                "\r\nConnection: close\r\n\r\n", reason, "\n");
}
static ssize_t send_some(const comm::Fd& socket, std::string_view text) {
  return ::send(socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct Clients::Workers {
  explicit Workers(size_t threads) : pool(threads) {}
  httplib::ThreadPool pool;
};

struct Clients::Client {
  comm::Fd socket;
  std::string in = {}, out = {};           // what came, and what is to be sent
  size_t size = 0;                         // of the request, once it is known
  size_t sent = 0;                         // of `out`
  size_t asked = 0;                        // bytes of a request that waits for its answer
  bool keep = false;                       // after `out`
  bool leaves = false;                     // has all its answers, and may send what nobody reads
  Clock::time_point since = Clock::now();  // when it was connected, or did what was expected of it last

  bool waits() const { return asked > 0; }
  bool is_idle() const { return !waits() && out.empty(); }
  bool give(std::string text, bool keeps = false) {
    out = std::move(text), sent = 0, keep = keeps;
    return true;
  }
};

Clients::Clients(std::function<ClientAnswer(const std::string&)> answer, const ClientLimits& limits)
    : answer_(std::move(answer)), limits_(limits), wakes_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  RT_CHECK_AS(IoError, wakes_, "cannot serve: ", std::generic_category().message(errno));
  workers_ = std::make_unique<Workers>(limits.threads);
  thread_ = std::thread([this] { serve(); });
}

Clients::~Clients() {
  end(ends_);
  workers_->pool.shutdown();
}

void Clients::finish() { end(finishes_); }

void Clients::end(bool& how) {
  {
    const std::lock_guard lock(mutex_);
    how = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
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
  while (!finishing_ || !all_.empty()) {
    const std::vector<pollfd> ready = wait();
    take_news();
    for (auto at = all_.begin(); at != all_.end();) {
      auto& [number, client] = *at;
      const auto found = std::ranges::find(ready, client.socket.get(), &pollfd::fd);
      const bool is_ready = found != ready.end() && found->revents != 0;
      const bool stays = client.waits() || (is_ready ? go_on(number, client) : is_in_time(client));
      at = stays && !(finishing_ && client.is_idle() && !is_ready) ? std::next(at) : all_.erase(at);
    }
    leave_the_longest();
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    finishing_ = finishes_;
  }
}

// Waits until a client does something, or something is to be done for one.
std::vector<pollfd> Clients::wait() {
  const int milliseconds = finishing_ ? 20 : all_.empty() ? -1 : 500;
  std::vector<pollfd> out{{wakes_.get(), POLLIN, 0}};
  for (const auto& [number, client] : all_)
    if (!client.waits()) out.push_back({client.socket.get(), short(client.out.empty() ? POLLIN : POLLOUT), 0});
  ::poll(out.data(), out.size(), milliseconds);
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
    client.give(std::move(answer.text), answer.keep), client.asked = 0;
    client.since = Clock::now();
  }
  answered_.clear();
}

bool Clients::is_in_time(const Client& client) const { return Clock::now() - client.since < limits_.patience; }

bool Clients::go_on(uint64_t number, Client& client) {
  return client.out.empty() ? read_from(number, client) : write_to(number, client);
}

bool Clients::read_from(uint64_t number, Client& client) {
  char part[1 << 16];
  const ssize_t got = ::recv(client.socket.get(), part, sizeof part, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (client.leaves) return got > 0 && is_in_time(client);
  client.in.append(part, size_t(got));
  return got > 0 && take_request(number, client);
}

bool Clients::write_to(uint64_t number, Client& client) {
  const ssize_t done = send_some(client.socket, std::string_view(client.out).substr(client.sent));
  if (done < 0) return errno == EAGAIN || errno == EINTR;
  client.sent += size_t(done), client.since = Clock::now();
  if (client.sent < client.out.size()) return true;
  client.out = {};
  if (client.keep) return take_request(number, client);
  // A connection that is closed with something unread is reset, and the client might not get what was sent.
  client.in = {}, client.leaves = true;
  return ::shutdown(client.socket.get(), SHUT_WR) == 0;
}

// Has the request answered if it is there as a whole, or refuses it.
bool Clients::take_request(uint64_t number, Client& client) {
  if (client.size == 0) {
    const RequestSize size = request_size(client.in);
    if (std::max(size.head, size.head > 0 ? 0 : client.in.size()) > limits_.head)
      return client.give(refusal("431 Request Header Fields Too Large",
                                 concat("expected at most ", limits_.head, " bytes before the content")));
    if (size.head == 0) return is_in_time(client);
    if (size.wrong) return client.give(refusal(size.wrong, "expected the header Content-Length, and one number in it"));
    if (size.body > limits_.body)
      return client.give(refusal("413 Content Too Large",
                                 concat("expected at most ", limits_.body, " bytes of content, got ", size.body)));
    client.size = size.head + size.body;
    if (size.asks && client.in.size() < client.size) return client.give("HTTP/1.1 100 Continue\r\n\r\n", true);
  }
  if (client.in.size() < client.size) return is_in_time(client);
  std::string request = client.in.substr(0, client.size);
  client.in.erase(0, client.size);
  client.asked = client.size, client.size = 0;
  ask(number, std::move(request));
  return true;
}

void Clients::ask(uint64_t number, std::string request) {
  workers_->pool.enqueue([this, number, request = std::move(request)] {
    ClientAnswer answer;
    try {
      answer = answer_(request);
    } catch (const std::exception&) {  // no memory
    }
    if (answer.text.empty()) answer = {.text = refusal("500 Internal Server Error", "the server failed")};
    {
      const std::lock_guard lock(mutex_);
      answered_.emplace_back(number, std::move(answer));
    }
    wake();
  });
}

// Ends the connections that have waited longest, while there are too many or their requests or answers too long.
void Clients::leave_the_longest() {
  size_t unread = 0, unsent = 0;
  for (const auto& [number, client] : all_) unread += client.in.size() + client.asked, unsent += client.out.size();
  for (;;) {
    const bool many = all_.size() > limits_.clients, reads = unread > limits_.unread, sends = unsent > limits_.unsent;
    if (!many && !reads && !sends) return;
    auto longest = all_.end();
    for (auto at = all_.begin(); at != all_.end(); ++at)
      if (const Client& c = at->second; !c.waits() && (many || (reads && !c.in.empty()) || (sends && !c.out.empty())))
        if (longest == all_.end() || c.since < longest->second.since) longest = at;
    if (longest == all_.end()) return;
    const Client& client = longest->second;
    unread -= client.in.size(), unsent -= client.out.size();
    if (client.out.empty()) {  // what it sent is read: it would not get the answer of a connection that is reset
      char unread_bytes[1 << 16];
      while (::recv(client.socket.get(), unread_bytes, sizeof unread_bytes, MSG_DONTWAIT) > 0) continue;
      send_some(client.socket, refusal("503 Service Unavailable", "too many requests at once; try again"));
    }
    all_.erase(longest);
  }
}

}  // namespace ringtape
