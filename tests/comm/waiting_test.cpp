// What a process says while it waits for the others of its job.
#include <algorithm>

#include "comm/store/socket.h"
#include "core/log.h"
#include "tests/support/job_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

// The log of f, run in a separate process.
template <class F> std::string logged(F&& f) {
  std::string lines;
  set_log_sink([&](const std::string& line) { lines += line + "\n"; });
  try {
    f();
  } catch (const CommError&) {
  }
  set_log_sink({});
  return lines;
}

TEST(Waiting, SaysForWhom) {
  const int port = port_of(Fd(listen_on("127.0.0.1", 0)));  // closed again
  const TemporaryFolder temporary;
  const Meeting meeting{.token = "sixteen letters.", .patience = Seconds(0.1)};
  const Meeting private_meeting{.folder = temporary.path(), .patience = Seconds(0.1)};
  Ranks ranks(2, [&](int r) {
    Place place = place_on_host(1, 2);
    if (r == 1) return logged([&] { join(place, private_meeting, Seconds(0.8)); });
    place.one_host = false;
    place.host = "127.0.0.1";
    place.port = port;
    return logged([&] { join(place, meeting, Seconds(0.8)); });
  });
  const std::string absent = ranks.result(0), unwritten = ranks.result(1);
  EXPECT_TRUE(absent.starts_with(concat("waiting for rank 0 at 127.0.0.1:", port, ": cannot reach "))) << absent;
  EXPECT_TRUE(has(absent, ": Connection refused\n")) << absent;
  EXPECT_TRUE(unwritten.starts_with("waiting for rank 0 on this host: rank 0 has not written ")) << unwritten;
  for (const std::string& text : {absent, unwritten}) {  // after 0.1, 0.3 and 0.7 s
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_TRUE(lines >= 1 && lines <= 3) << text;
  }
}

TEST(Waiting, Rank0SaysWhoHasNotCome) {
  const TemporaryFolder temporary;
  Ranks ranks(2, [&](int r) {
    const Meeting meeting{.folder = temporary.path(), .patience = Seconds(r ? kLong : 0.3)};
    return logged([&] { join(place_on_host(r * 2, 4), meeting, Seconds(r ? kLong : 2)); });
  });
  EXPECT_TRUE(has(ranks.result(0), "waiting for ranks 1, 3 of 4\n"));
  EXPECT_EQ(ranks.result(1), "nothing");
}

}  // namespace
}  // namespace ringtape::comm
