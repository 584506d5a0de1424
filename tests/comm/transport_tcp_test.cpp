// The tcp transport: its sockets, and who can connect.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <sstream>

#include "tests/support/transport_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

TEST(TransportTcp, SharesLargeMessagesBetweenSockets) {
  on_processes(3, [](const Context& context) {
    ::setenv("RINGTAPE_TCP_SOCKETS", "3", 1);
    const auto t = make_transport("tcp", context);
    EXPECT_GE(open_fds(), 3u + 2 * 3);
    pass_around(*t, {1, 256 << 10, (768 << 10) - 1, (768 << 10) + 1, 5000011}, false);
    many_tickets(*t);
  });
}

TEST(TransportTcp, TheNumberOfSocketsIsTheSame) {
  const auto ends = run_processes(2, Seconds(5), [](const Context& context) {
    ::setenv("RINGTAPE_TCP_SOCKETS", context.rank ? "2" : "4", 1);
    make_transport("tcp", context);
  });
  for (const auto& end : ends) EXPECT_MENTIONS(end.error, "RINGTAPE_TCP_SOCKETS");
}

// A store with a secret that a test has set before.
class KeepsSecret : public Store {
 public:
  explicit KeepsSecret(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    if (key != "tcp/secret") store_->set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return store_->set_once(key, value);
  }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    return store_->wait_any(keys, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  void erase(const std::string& key) override { store_->erase(key); }

 private:
  const std::shared_ptr<Store> store_;
};

// Unknown connections to a rank's port: one sends nothing, one closes, one sends garbage. They are not accepted and do
// not delay the ranks.
TEST(TransportTcp, StrangersStayOutside) {
  const auto store = memory_store();
  const auto failure = std::make_shared<Failure>();
  std::thread one([&] {
    const auto t = make_transport("tcp", {1, 2, store, failure, kTimeout});
    pass_around(*t, {100}, false);
  });
  store->set("tcp/host/0", store->wait("tcp/host/1", Deadline(kTimeout)));  // rank 1 now waits for rank 0 at its port
  store->set("tcp/secret", "a secret");
  std::istringstream in(store->wait("tcp/1", Deadline(kTimeout)));
  std::string host;
  int port = 0;
  in >> host >> port;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  ASSERT_EQ(::inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  std::vector<int> strangers;
  for (const std::string& said :
       {std::string(), std::string(1, 'x'), std::string(4096, 'y'), std::string(sizeof(int), '\0')}) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(strangers.back(), said.data(), said.size(), MSG_NOSIGNAL), ssize_t(said.size()));
  }
  char challenge[32], more;
  EXPECT_EQ(::recv(strangers[2], challenge, sizeof challenge, MSG_WAITALL), 32);
  EXPECT_LE(::recv(strangers[2], &more, 1, 0), 0);  // closed at once
  ::close(strangers[1]);
  std::thread zero([&] {
    const auto t = make_transport("tcp", {0, 2, std::make_shared<KeepsSecret>(store), failure, kTimeout});
    pass_around(*t, {100}, false);
  });
  zero.join();
  one.join();
  for (const size_t i : {size_t(0), size_t(2), size_t(3)}) ::close(strangers[i]);
}

}  // namespace
}  // namespace ringtape::comm
