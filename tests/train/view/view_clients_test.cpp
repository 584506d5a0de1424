// The connections to `ringtape view`: slow and many clients.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <stdexcept>

#include "core/check.h"
#include "train/view/clients.h"

namespace ringtape {
namespace {

using comm::Fd;

constexpr std::chrono::hours kForEver{1};
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
  Clients clients(answer, kForEver);
  const Fd fd = connect_to(clients);
  EXPECT_TRUE(send_to(fd, "keep one\r\n\r"));
  EXPECT_TRUE(send_to(fd, "\nkeep two\r\n\r\nlast\r\n\r\n"));
  EXPECT_EQ(received(fd), "to keep one;");
  EXPECT_EQ(received(fd), "to keep two;");
  EXPECT_EQ(received(fd), "to last;");
  EXPECT_EQ(received(fd), "");
}

TEST(Clients, SlowOnesHoldNobodyUp) {
  Clients clients(answer, kForEver);
  std::vector<Fd> slow;
  for (size_t i = 0; i < Clients::kMaxClients / 2; ++i) {
    slow.push_back(connect_to(clients));
    send_to(slow.back(), "begun");
  }
  EXPECT_EQ(asked(clients, "good"), "to good;");
  send_to(slow[0], " late\r\n\r\n");
  EXPECT_EQ(received(slow[0]), "to begun late;");
}

TEST(Clients, OfTooManyTheOldestAreLeft) {
  Clients clients(answer, kForEver);
  std::vector<Fd> slow;
  for (size_t i = 0; i < Clients::kMaxClients + 10; ++i) slow.push_back(connect_to(clients));
  EXPECT_EQ(asked(clients, "good"), "to good;");
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(received(slow[i]), "") << i;
}

TEST(Clients, WhoReadsSlowlyCostsBoundedMemory) {
  Clients clients(answer, kForEver);
  std::vector<Fd> slow;
  for (size_t i = 0; i < 2 * Clients::kMaxUnsent / kBig; ++i) {
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
  EXPECT_LE(whole, Clients::kMaxUnsent / kBig);
}

TEST(Clients, ARequestMustComeInTime) {
  Clients clients(answer, std::chrono::seconds(1));
  const Fd silent = connect_to(clients), dripping = connect_to(clients);
  int parts = 0;
  while (parts < 600 && send_to(dripping, "x")) ++parts, std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(parts, 600);
  EXPECT_EQ(received(silent), "");
}

TEST(Clients, WhatCannotBeAnsweredIsRefused) {
  Clients clients(answer, kForEver);
  EXPECT_EQ(asked(clients, "throw").substr(0, 12), "HTTP/1.1 500");
  const Fd endless = connect_to(clients);
  for (size_t sent = 0; sent <= 2 * Clients::kMaxRequest && send_to(endless, std::string(1024, 'x')); sent += 1024) {
  }
  EXPECT_EQ(received(endless).substr(0, 12), "HTTP/1.1 431");
}

}  // namespace
}  // namespace ringtape
