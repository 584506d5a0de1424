// Stores: every kind keeps the same guarantees; frames; access; wills of processes that die.
#include "comm/store/store.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "comm/store/frame.h"
#include "comm/store/socket.h"
#include "comm/store/state.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "tests/fuzz/frame_target.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::Child;
using test::message_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

const std::string kToken = "0123456789abcdef";
Deadline soon(double seconds = 20) { return Deadline(Seconds(seconds)); }

// A store of each kind, and how another process or rank opens the same store.
class Stores : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "memory") open = [one = memory_store()] { return one; };
    if (kind == "prefix") open = [one = memory_store()] { return prefix_store(one, "a/b"); };
    if (kind == "file") open = [this] { return file_store(temporary.path() + "/job"); };
    if (kind == "tcp") {
      server = std::make_unique<StoreServer>(StoreServer::Options{.token = kToken, .heartbeat = Seconds(5)});
      open = [port = server->port()] { return tcp_store({"127.0.0.1", port, kToken}, soon()); };
    }
  }
  const TemporaryFolder temporary;
  std::unique_ptr<StoreServer> server;
  std::function<std::shared_ptr<Store>()> open;
};
INSTANTIATE_TEST_SUITE_P(All, Stores, testing::Values("memory", "prefix", "file", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Stores, HoldsValues) {
  const auto a = open(), b = open();
  EXPECT_EQ(b->get("x"), std::nullopt);
  a->set("x", "1");
  EXPECT_EQ(b->get("x"), "1");
  const std::string bytes("\0\xff\n\t/ %", 7);
  b->set(bytes, bytes);
  EXPECT_EQ(a->get(bytes), bytes);
  EXPECT_EQ(a->set_once("y", "first"), "first");
  EXPECT_EQ(b->set_once("y", "second"), "first");
  EXPECT_EQ(b->wait("y", soon()), "first");
  b->erase("y");
  b->erase("y");
  EXPECT_EQ(a->get("y"), std::nullopt);
  a->set("empty", "");
  EXPECT_EQ(b->get("empty"), "");
  const std::string large(900'000, 'z');
  a->set("large", large);
  EXPECT_EQ(b->get("large"), large);
}

TEST_P(Stores, AddsNumbers) {
  const auto a = open(), b = open();
  EXPECT_EQ(a->add("n", 5), 5);
  EXPECT_EQ(b->add("n", -7), -2);
  EXPECT_EQ(a->get("n"), "-2");
  a->set("n", "two");
  EXPECT_NE(message_of<CommError>([&] { b->add("n", 1); }).find("n' holds 'two'"), std::string::npos);
  a->set("n", std::to_string(INT64_MAX));
  EXPECT_NE(message_of<CommError>([&] { b->add("n", 1); }).find("64 bits"), std::string::npos);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, own = open()] {
      for (int i = 0; i < 25; ++i) own->add("together", 1);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(a->get("together"), "100");
}

TEST_P(Stores, WaitsForTheFirstOfSeveralKeys) {
  const auto a = open(), b = open();
  EXPECT_NE(message_of<CommError>([&] { a->wait("never", soon(0.02)); }).find("'never'"), std::string::npos);
  const std::string keys[] = {"k1", "k2", "k3"};
  EXPECT_FALSE(a->wait_any(keys, soon(0.02)));
  std::optional<Store::Entry> found;
  std::thread waiter([&] { found = a->wait_any(keys, soon()); });
  std::thread other([&] { EXPECT_EQ(a->wait("z", soon()), "4"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  b->set("k2", "2");
  b->set("z", "4");
  waiter.join();
  other.join();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, "k2");
  EXPECT_EQ(found->value, "2");
}

TEST(Frame, ReadsWhatItWrote) {
  const Frame frame{Frame::Type::wait, 7, INT64_MIN, {"a", "", std::string("\0b", 2)}};
  const std::string bytes = encode(frame);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Parsed part = parse_frame(std::string_view(bytes).substr(0, n));
    EXPECT_FALSE(part.frame || part.error) << n;
  }
  const Parsed parsed = parse_frame(bytes + "rest");
  ASSERT_TRUE(parsed.frame);
  EXPECT_EQ(parsed.used, bytes.size());
  EXPECT_EQ(parsed.frame->type, frame.type);
  EXPECT_EQ(parsed.frame->request, frame.request);
  EXPECT_EQ(parsed.frame->number, frame.number);
  EXPECT_EQ(parsed.frame->fields, frame.fields);
}

TEST(Frame, RefusesWhatIsNone) {
  EXPECT_STREQ(parse_frame("GET / HTTP/1.1\r\n").error, "its length is over the limit");
  EXPECT_STREQ(parse_frame(std::string(8, '\0')).error, "its length is less than a header's");
  std::string bytes = encode({Frame::Type::set, 1, 0, {"key", "value"}});
  const auto with = [&](size_t at, char c) {
    std::string changed = bytes;
    changed[at] = c;
    return std::string(parse_frame(changed).error);
  };
  EXPECT_EQ(with(4, 99), "its type is unknown");
  EXPECT_EQ(with(4, char(Frame::Type::get)), "it has too few or too many fields");
  EXPECT_EQ(with(19, 2), "a field is longer than the frame");
  EXPECT_EQ(with(19, 9), "a field is cut off");
  EXPECT_EQ(with(26, 4), "bytes follow its last field");
  EXPECT_EQ(with(26, 6), "a field is longer than the frame");
  EXPECT_STREQ(parse_frame(bytes, 20).error, "its length is over the limit");
  EXPECT_MENTIONS(message_of<CommError>([] {
                    encode({Frame::Type::set, 1, 0, {"big", std::string(kMaxFrame, 'x')}});
                  }),
                  "'big'");
}

// The target of the fuzzer, with nearly valid frames.
TEST(Frame, SurvivesRandomBytes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) {
      Frame frame{Frame::Type(random() % 16), uint32_t(random() % 4), int64_t(random() % 8), {}};
      for (size_t f = random() % 4; f > 0; --f)
        frame.fields.push_back(std::string(random() % 5, char('a' + random() % 2)));
      bytes += encode(frame);
    }
    for (size_t flips = random() % 6; flips > 0; --flips) bytes[random() % bytes.size()] ^= char(1u << random() % 8);
    bytes.resize(bytes.size() - random() % 8);
    test::drive_frames(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}

TEST(Token, ProofsAreOfBothNoncesAndTheSide) {
  const std::string s(kNonce, 's'), c(kNonce, 'c');
  const std::string proof = prove(kToken, Side::client, s, c);
  EXPECT_EQ(proof.size(), kProof);
  EXPECT_TRUE(same(proof, prove(kToken, Side::client, s, c)));
  EXPECT_FALSE(same(proof, prove(kToken, Side::store, s, c)));
  EXPECT_FALSE(same(proof, prove(kToken, Side::client, c, s)));
  EXPECT_FALSE(same(proof, prove(kToken + "0", Side::client, s, c)));
  EXPECT_FALSE(same(proof, ""));
  EXPECT_EQ(random_token().size(), 32u);
  EXPECT_NE(random_token(), random_token());
}

TEST(TcpStore, RefusesAWrongToken) {
  const StoreServer server({.token = kToken});
  const std::string message = message_of<TokenRefused>([&] {
    tcp_store({"127.0.0.1", server.port(), "another token 123"}, soon());
  });
  EXPECT_NE(message.find("RINGTAPE_TOKEN"), std::string::npos) << message;
}

TEST(TcpStore, RefusesAnotherVersionOfTheProtocol) {
  const StoreServer server({.token = kToken});
  const Fd s = connect_to("127.0.0.1", server.port(), soon());
  const std::string proof =
      encode({Frame::Type::proof, 0, kProtocol + 1, {std::string(kNonce, 'n'), std::string(kProof, 'p')}});
  ::send(s.get(), proof.data(), proof.size(), MSG_NOSIGNAL);
  std::string heard;
  char bytes[256];
  for (const Deadline deadline = soon(); heard.find("the same build") == std::string::npos && !deadline.passed();)
    if (const ssize_t got = ::recv(s.get(), bytes, sizeof bytes, 0); got > 0) heard.append(bytes, size_t(got));
  EXPECT_NE(heard.find("version 1 of the protocol, this process 2"), std::string::npos);
}

// Whatever unknown connections do, the job's own clients are served, and no unknown connection stays.
TEST(TcpStore, StrangersDisturbNobody) {
  const StoreServer server({.token = kToken, .patience = Seconds(0.3)});
  const auto store = tcp_store({"127.0.0.1", server.port(), kToken}, soon());
  std::vector<Fd> strangers;
  for (const std::string& says :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), std::string("\x11\0\0", 3),
        encode({Frame::Type::set, 1, 0, {"x", "stolen"}}), encode({Frame::Type::proof, 0, kProtocol, {"short", ""}}),
        encode({Frame::Type::proof, 0, kProtocol, {std::string(kNonce, 'n'), std::string(kProof, 'p')}}),
        encode({Frame::Type::proof, 0, kProtocol + 1, {std::string(kNonce, 'n'), std::string(kProof, 'p')}})}) {
    strangers.push_back(connect_to("127.0.0.1", server.port(), soon()));
    if (!says.empty()) ::send(strangers.back().get(), says.data(), says.size(), MSG_NOSIGNAL);
    store->set("y", "mine");
    EXPECT_EQ(store->get("y"), "mine");
  }
  EXPECT_EQ(store->get("x"), std::nullopt);
  for (const Fd& s : strangers) {  // each sees its connection close
    char bytes[256];
    ssize_t got = 0;
    for (const Deadline deadline = soon();
         (got = ::recv(s.get(), bytes, sizeof bytes, 0)) != 0 && (got > 0 || errno == EAGAIN);) {
      ASSERT_FALSE(deadline.passed());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

TEST(TcpStore, DoesNotTrustAStoreWithoutTheToken) {
  const Fd impostor = listen_on("127.0.0.1", 0);
  std::thread thread([&] {
    Fd s;
    for (const Deadline deadline = soon(); !s && !deadline.passed();)
      s = Fd(::accept(impostor.get(), nullptr, nullptr));
    const std::string all = encode({Frame::Type::challenge, 0, kProtocol, {std::string(kNonce, 'n')}}) +
                            encode({Frame::Type::welcome, 0, 10'000, {std::string(kProof, 'p'), "me"}});
    ::send(s.get(), all.data(), all.size(), MSG_NOSIGNAL);
    char byte;
    while (::recv(s.get(), &byte, 1, 0) > 0) {
    }
  });
  const std::string message = message_of<TokenRefused>([&] {
    tcp_store({"127.0.0.1", port_of(impostor), kToken}, soon());
  });
  EXPECT_NE(message.find("does not have the job's token"), std::string::npos) << message;
  thread.join();
}

TEST(TcpStore, NamesWhoDoesNotAnswer) {
  const Fd silent = listen_on("127.0.0.1", 0);
  const std::string mute = message_of<CommError>([&] { tcp_store({"127.0.0.1", port_of(silent), kToken}, soon(0.2)); });
  EXPECT_NE(mute.find("is not a ringtape store"), std::string::npos) << mute;
  const int port = port_of(Fd(listen_on("127.0.0.1", 0)));  // closed again
  const std::string absent = message_of<CommError>([&] { tcp_store({"127.0.0.1", port, kToken}, soon(0.2)); });
  EXPECT_NE(absent.find("refused"), std::string::npos) << absent;
}

TEST(TcpStore, EveryInterfaceIsIpv6sToo) {
  try {
    listen_on("::1", 0);
  } catch (const CommError&) {
    GTEST_SKIP() << "there is no IPv6";
  }
  const StoreServer server({.token = kToken, .host = ""});
  for (const char* host : {"::1", "127.0.0.1"})
    EXPECT_EQ(tcp_store({host, server.port(), kToken}, soon())->address(), host);
}

TEST(TcpStore, TakesOverASocketThatListens) {
  const Fd listening = listen_on("127.0.0.1", 0);
  const StoreServer server({.token = kToken, .listening = ::dup(listening.get())});
  EXPECT_EQ(server.port(), port_of(listening));
  tcp_store({"127.0.0.1", server.port(), kToken}, soon())->set("x", "1");
}

TEST(TcpStore, ServesManyAtOnce) {
  const StoreServer server({.token = kToken});
  std::vector<std::thread> threads;
  std::atomic<int> arrived{0};
  for (int i = 0; i < 50; ++i)
    threads.emplace_back([&, i] {
      const auto store = tcp_store({"127.0.0.1", server.port(), kToken}, soon());
      if (store->add("here", 1) == 50) store->set("all", "here");
      if (store->wait("all", soon()) == "here") ++arrived;
      store->set(std::to_string(i), "gone");
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(arrived, 50);
}

TEST(TcpStore, ExecutesTheWillOfAKilledProcessAlone) {
  const Fd listening = listen_on("127.0.0.1", 0);  // before the threads start: a fork would not have them
  const StoreAddress address{"127.0.0.1", port_of(listening), kToken};
  Child leaves([&] { tcp_store(address, soon())->will("end", "who left"); });
  Child dies([&] {
    const auto store = tcp_store(address, soon());
    store->will("end", "rank 2");
    store->set("ready", "1");
    ::pause();
  });
  const StoreServer server({.token = kToken, .listening = ::dup(listening.get())});
  const auto store = tcp_store(address, soon());
  EXPECT_EQ(leaves.wait(), 0);
  store->wait("ready", soon());
  EXPECT_EQ(store->get("end"), std::nullopt);
  dies.kill(SIGKILL);
  EXPECT_EQ(store->wait("end", soon()), "rank 2 died");
}

TEST(TcpStore, NoticesAProcessThatStandsStill) {
  const Fd listening = listen_on("127.0.0.1", 0);
  const StoreAddress address{"127.0.0.1", port_of(listening), kToken};
  Child stops([&] {
    const auto store = tcp_store(address, soon());
    store->will("end", "rank 3");
    store->set("ready", "1");
    ::pause();
  });
  const StoreServer server({.token = kToken, .listening = ::dup(listening.get()), .heartbeat = Seconds(1)});
  const auto store = tcp_store(address, soon());
  store->wait("ready", soon());
  stops.kill(SIGSTOP);
  EXPECT_EQ(store->wait("end", soon()),
            "rank 3 has been silent for 1 s: it is stopped, or its machine or its network is gone");
}

TEST(TcpStore, NamesTheHostThatDied) {
  int port[2];
  ASSERT_EQ(::pipe(port), 0);
  Child hosts([&] {
    const StoreServer server({.token = kToken, .name = "rank 0 (pid 1 on a)"});
    const int p = server.port();
    (void)!::write(port[1], &p, sizeof p);
    ::pause();
  });
  int p = 0;
  ASSERT_EQ(::read(port[0], &p, sizeof p), ssize_t(sizeof p));
  const auto store = tcp_store({"127.0.0.1", p, kToken}, soon());
  std::string why;
  std::thread waiter([&] { why = message_of<CommError>([&] { store->wait("x", soon()); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  hosts.kill(SIGKILL);
  waiter.join();
  EXPECT_EQ(why, concat("rank 0 (pid 1 on a) died; it hosted the store at 127.0.0.1:", p));
  EXPECT_EQ(message_of<CommError>([&] { store->get("x"); }), why);
  ::close(port[0]);
  ::close(port[1]);
}

TEST(TcpStore, ServerWaitsForItsClients) {
  auto server =
      std::make_unique<StoreServer>(StoreServer::Options{.token = kToken, .name = "rank 0", .heartbeat = Seconds(1)});
  const StoreAddress address{"127.0.0.1", server->port(), kToken};
  auto leaves = tcp_store(address, soon());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    leaves->set("x", "1");
    leaves.reset();
  });
  server.reset();
  later.join();
  server =
      std::make_unique<StoreServer>(StoreServer::Options{.token = kToken, .name = "rank 0", .heartbeat = Seconds(1)});
  const auto stays = tcp_store({"127.0.0.1", server->port(), kToken}, soon());
  server.reset();
  EXPECT_NE(message_of<StoreClosed>([&] { stays->wait("x", soon()); }).find("rank 0 has finished"), std::string::npos);
}

}  // namespace
}  // namespace ringtape::comm
