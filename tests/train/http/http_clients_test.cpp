// The connections to a server: slow and many clients, long requests.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <stdexcept>

#include "core/check.h"
#include "train/http/clients.h"

namespace ringtape {
namespace {

using comm::Fd;

constexpr std::chrono::hours kForEver{1};
constexpr ClientLimits kLimits{.patience = kForEver};
constexpr size_t kBig = 8 << 20;

ClientAnswer answer(const std::string& head) {
  if (head.starts_with("throw")) throw std::runtime_error("no");
  return {head.starts_with("big") ? std::string(kBig, 'x') : concat("to ", head.substr(0, head.find('\r')), ';'),
          head.starts_with("keep")};
}

Fd connect_to(Clients& clients) {
  int both[2];
  RT_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "no sockets");
  clients.add(Fd(both[0]));
  return Fd(both[1]);
}
bool send_to(const Fd& fd, std::string_view text) {
  return ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
}
// What comes until the connection ends, or a ';'.
std::string received(const Fd& fd) {
  std::string out;
  for (char c = 0; c != ';' && ::recv(fd.get(), &c, 1, 0) == 1;) out += c;
  return out;
}
size_t bytes_until_the_end(const Fd& fd) {
  std::string part(1 << 16, ' ');
  size_t out = 0;
  for (ssize_t got; (got = ::recv(fd.get(), part.data(), part.size(), 0)) > 0;) out += size_t(got);
  return out;
}
std::string asked(Clients& clients, const std::string& what) {
  const Fd fd = connect_to(clients);
  send_to(fd, what + "\r\n\r\n");
  return received(fd);
}

TEST(Clients, AConnectionIsKeptIfTheAnswerSaysSo) {
  Clients clients(answer, kLimits);
  const Fd fd = connect_to(clients);
  EXPECT_TRUE(send_to(fd, "keep one\r\n\r"));
  EXPECT_TRUE(send_to(fd, "\nkeep two\r\n\r\nlast\r\n\r\n"));
  EXPECT_EQ(received(fd), "to keep one;");
  EXPECT_EQ(received(fd), "to keep two;");
  EXPECT_EQ(received(fd), "to last;");
  EXPECT_EQ(received(fd), "");
}

TEST(Clients, SlowOnesHoldNobodyUp) {
  Clients clients(answer, kLimits);
  std::vector<Fd> slow;
  for (size_t i = 0; i < kLimits.clients / 2; ++i) {
    slow.push_back(connect_to(clients));
    send_to(slow.back(), "begun");
  }
  EXPECT_EQ(asked(clients, "good"), "to good;");
  send_to(slow[0], " late\r\n\r\n");
  EXPECT_EQ(received(slow[0]), "to begun late;");
}

TEST(Clients, OfTooManyTheOldestAreLeft) {
  Clients clients(answer, kLimits);
  std::vector<Fd> slow;
  for (size_t i = 0; i < kLimits.clients + 10; ++i) slow.push_back(connect_to(clients));
  EXPECT_EQ(asked(clients, "good"), "to good;");
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(received(slow[i]).substr(0, 12), "HTTP/1.1 503") << i;
}

TEST(Clients, WhoReadsSlowlyCostsBoundedMemory) {
  Clients clients(answer, kLimits);
  std::vector<Fd> slow;
  for (size_t i = 0; i < 2 * kLimits.unsent / kBig; ++i) {
    slow.push_back(connect_to(clients));
    send_to(slow.back(), "big\r\n\r\n");
  }
  size_t whole = 0;
  for (const Fd& fd : slow) {  // those that were left have only what was in a socket
    char c = 0;
    ASSERT_EQ(::recv(fd.get(), &c, 1, MSG_PEEK), 1);
  }
  EXPECT_EQ(asked(clients, "good"), "to good;");
  for (const Fd& fd : slow) whole += bytes_until_the_end(fd) == kBig;
  EXPECT_GT(whole, 0u);
  EXPECT_LE(whole, kLimits.unsent / kBig);
}

TEST(Clients, ARequestMustComeInTime) {
  Clients clients(answer, {.patience = std::chrono::seconds(1)});
  const Fd silent = connect_to(clients), dripping = connect_to(clients);
  int parts = 0;
  while (parts < 600 && send_to(dripping, "x")) ++parts, std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(parts, 600);
  EXPECT_EQ(received(silent), "");
}

TEST(Clients, WhatCannotBeAnsweredIsRefused) {
  Clients clients(answer, kLimits);
  EXPECT_EQ(asked(clients, "throw").substr(0, 12), "HTTP/1.1 500");
  const Fd endless = connect_to(clients);
  for (size_t sent = 0; sent <= 2 * kLimits.head && send_to(endless, std::string(1024, 'x')); sent += 1024) {
  }
  EXPECT_EQ(received(endless).substr(0, 12), "HTTP/1.1 431");
}

// The head of a request with content.
std::string posted(size_t size, const std::string& more = "") {
  return concat("keep it\r\nContent-Length: ", size, "\r\n", more, "\r\n");
}

TEST(Clients, ContentIsPartOfARequest) {
  size_t got = 0;
  Clients clients(
      [&](const std::string& request) {
        got = request.size();
        return ClientAnswer{concat(request.substr(request.find("\r\n\r\n") + 4), ';'), true};
      },
      {.body = 1 << 20, .patience = kForEver});
  const Fd fd = connect_to(clients);
  EXPECT_TRUE(send_to(fd, posted(4) + "on") && send_to(fd, "e1" + posted(0) + posted(3) + "two"));
  EXPECT_EQ(received(fd), "one1;");
  EXPECT_EQ(received(fd), ";");
  EXPECT_EQ(received(fd), "two;");
  const std::string head = posted(1 << 20), content(1 << 20, 'x');
  std::thread sender([&] { EXPECT_TRUE(send_to(fd, head) && send_to(fd, content)); });
  EXPECT_EQ(received(fd), content + ';');
  EXPECT_EQ(got, head.size() + content.size());
  sender.join();
}

TEST(Clients, WhoAsksBeforeItSendsContentIsTold) {
  Clients clients(answer, kLimits);
  const Fd fd = connect_to(clients);
  send_to(fd, posted(1, "expect: 100-Continue\r\n"));
  std::string told(25, ' ');
  ASSERT_EQ(::recv(fd.get(), told.data(), told.size(), MSG_WAITALL), 25);
  EXPECT_EQ(told, "HTTP/1.1 100 Continue\r\n\r\n");
  send_to(fd, "x");
  EXPECT_EQ(received(fd), "to keep it;");
}

TEST(Clients, ContentThatCannotBeReadIsRefusedInOneLine) {
  Clients clients(answer, kLimits);
  for (const auto& [head, status, reason] :
       {std::tuple("Content-Length: 1025", "413", "expected at most 1024 bytes of content, got 1025\n"),
        {"Content-Length: -1", "400", "expected the header Content-Length, and one number in it\n"},
        {"content-length: 1x", "400", "and one number in it\n"},
        {"Content-Length:", "400", "and one number in it\n"},
        {"Content-Length: 99999999999999999999", "400", "and one number in it\n"},
        {"Content-Length: 1\r\nContent-Length: 2", "400", "and one number in it\n"},
        {"Transfer-Encoding: chunked", "411", "expected the header Content-Length"}}) {
    const Fd fd = connect_to(clients);
    send_to(fd, concat("POST / HTTP/1.1\r\n", head, "\r\n\r\n"));
    for (int i = 0; i < 100; ++i) send_to(fd, "what nobody reads");
    const std::string answered = received(fd);
    EXPECT_EQ(answered.substr(9, 3), status) << head;
    EXPECT_NE(answered.find(reason), std::string::npos) << answered;
  }
}

TEST(Clients, RequestsOfManyCostBoundedMemory) {
  Clients clients(answer, {.body = kBig, .unread = 4 * kBig, .patience = kForEver});
  std::vector<Fd> slow;
  for (size_t i = 0; i < 8; ++i) {
    slow.push_back(connect_to(clients));
    send_to(slow.back(), posted(kBig) + std::string(kBig - 1, 'x'));
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(received(slow[i]).substr(0, 12), "HTTP/1.1 503") << i;
  EXPECT_EQ(asked(clients, "good"), "to good;");
  send_to(slow.back(), "x");
  EXPECT_EQ(received(slow.back()), "to keep it;");
}

TEST(Clients, WhatHasComeIsAnsweredBeforeTheEnd) {
  std::atomic<bool> begun = false, may_end = false;
  Clients clients(
      [&](const std::string& request) {
        begun = true;
        while (!may_end) std::this_thread::yield();
        return answer(request);
      },
      {.threads = 1, .patience = kForEver});
  const Fd working = connect_to(clients), waiting = connect_to(clients), half = connect_to(clients),
           silent = connect_to(clients);
  send_to(working, "keep one\r\n\r\n"), send_to(waiting, "keep two\r\n\r\n"), send_to(half, "keep th");
  while (!begun) std::this_thread::yield();
  std::thread end([&] { clients.finish(); });
  EXPECT_EQ(received(silent), "");
  EXPECT_EQ(received(half), "");
  may_end = true;
  EXPECT_EQ(received(working), "to keep one;");
  EXPECT_EQ(received(waiting), "to keep two;");
  end.join();
}

}  // namespace
}  // namespace ringtape
