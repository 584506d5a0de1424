#pragma once
#include <filesystem>
#include <functional>
#include <iterator>
#include <vector>

#include "comm/transport/transports.h"
#include "tests/support/process_ranks.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

// Messages for the tests of transports, and ranks that send them.
namespace ringtape::comm::test {

using ringtape::test::message_of;
using ringtape::test::on_processes;
using ringtape::test::run_processes;

constexpr Seconds kTimeout(60);

// Runs f on n threads, each with the context of its rank.
inline void on_threads(int n, const std::function<void(const Context&)>& f) {
  EXPECT_EQ(run_threads(n, 1, kTimeout, f), "");
}

inline Operation operation(int64_t count, uint64_t sequence = 1) {
  return {.kind = Collective::all_reduce, .dtype = DType::u8, .count = count, .sequence = sequence};
}

inline uint8_t byte_of(int rank, size_t message, size_t i) {
  return uint8_t(rank * 31 + int(message % 251) * 7 + int(i % 251) + int(i >> 12));
}

inline size_t open_fds() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

// A buffer from the transport or from the heap.
struct Buffer {
  Buffer(Transport& t, size_t bytes, bool shared)
      : memory(shared ? t.allocate(bytes) : std::make_shared<uint8_t[]>(bytes)) {}
  uint8_t* get() const { return static_cast<uint8_t*>(memory.get()); }
  std::shared_ptr<void> memory;
};

// Every rank sends messages of these sizes, one by one, to the next rank and receives from the previous one.
inline void pass_around(Transport& t, const std::vector<size_t>& sizes, bool shared) {
  const int next = (t.rank() + 1) % t.size(), previous = (t.rank() + t.size() - 1) % t.size();
  for (size_t m = 0; m < sizes.size(); ++m) {
    const Buffer out(t, sizes[m], shared), in(t, sizes[m], shared);
    for (size_t i = 0; i < sizes[m]; ++i) out.get()[i] = byte_of(t.rank(), m, i);
    t.begin(operation(int64_t(sizes[m]), m + 1), Deadline(kTimeout));
    t.exchange({send_to(next, out.get(), sizes[m]), recv_from(previous, in.get(), sizes[m])});
    size_t wrong = 0;
    for (size_t i = 0; i < sizes[m]; ++i) wrong += in.get()[i] != byte_of(previous, m, i);
    ASSERT_EQ(wrong, 0u) << t.name() << ", " << sizes[m] << " bytes";
  }
}

inline const std::vector<size_t> kSizes = {
    0, 1, 63, 64, 65, 4095, 4096, 4097, 100003, (256 << 10) - 64, 256 << 10, (256 << 10) + 1, (1 << 20) + 7};

// Starts many messages before it waits for the first; even ones go to the next rank, odd ones to the previous rank.
inline void many_tickets(Transport& t) {
  constexpr size_t kMessages = 150;
  const int next = (t.rank() + 1) % t.size(), previous = (t.rank() + t.size() - 1) % t.size();
  std::vector<std::vector<uint8_t>> out, in;
  std::vector<Transport::Ticket> tickets;
  t.begin(operation(1), Deadline(kTimeout));
  for (size_t m = 0; m < kMessages; ++m) {
    const size_t bytes = m * 977 % 20011;
    out.emplace_back(bytes);
    in.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) out[m][i] = byte_of(t.rank(), m, i);
  }
  for (size_t m = 0; m < kMessages; ++m) {
    const Transfer both[] = {send_to(m % 2 ? previous : next, out[m].data(), out[m].size()),
                             recv_from(m % 2 ? next : previous, in[m].data(), in[m].size())};
    tickets.push_back(t.start(both));
  }
  for (size_t m = 0; m < kMessages; ++m) {
    t.finish(tickets[m]);
    size_t wrong = 0;
    for (size_t i = 0; i < in[m].size(); ++i) wrong += in[m][i] != byte_of(m % 2 ? next : previous, m, i);
    ASSERT_EQ(wrong, 0u) << t.name() << ", message " << m;
  }
}

// Each rank adds up the shared buffers of all ranks, and then writes to all of them.
inline void share_and_fence(Transport& t, int rounds) {
  const int n = t.size();
  const std::shared_ptr<void> reachable = t.allocate(4096);
  std::vector<int> heap(1024);
  for (int round = 1; round <= rounds; ++round) {
    int* const own = round % 2 ? static_cast<int*>(reachable.get()) : heap.data();
    for (int i = 0; i < 8; ++i) own[i] = round * (t.rank() + 1) + i;
    t.begin(operation(8, uint64_t(round)), Deadline(kTimeout));
    const std::vector<void*> all = t.share(own, 32);
    ASSERT_EQ(int(all.size()), n);
    int sum = 0;
    for (void* data : all) sum += static_cast<int*>(data)[round % 8];
    ASSERT_EQ(sum, round * n * (n + 1) / 2 + n * (round % 8));
    t.fence();
    static_cast<int*>(all[size_t((t.rank() + 1) % n)])[0] = round;
    t.fence();
    ASSERT_EQ(static_cast<int*>(all[size_t(t.rank())])[0], round);
  }
}

}  // namespace ringtape::comm::test
