// A buffer of which each rank holds a part, and which has memory piece by piece while it is used.
#include "comm/parallel/sharded_buffers.h"

#include "core/part.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

constexpr int64_t kPieces = 7, kSize = 48;  // of each piece

// A rank's end of a buffer whose element i has the value i + 1000 round.
struct Held {
  Held(ProcessGroup& group, bool keeps = false, int within = 0) : group(group) {
    const std::vector<int64_t> anywhere = [] {
      std::vector<int64_t> out;
      for (int64_t i = 0; i < kPieces * kSize; ++i) out.push_back(i);
      return out;
    }();
    for (int64_t i = kPieces; i-- > 0;) stretches.push_back(divide(i * kSize, (i + 1) * kSize, anywhere, group.size()));
    int64_t size = 0;
    for (const Stretch& s : stretches) size += s.of(group.rank()).size();
    own = zeros({size});
    parts = Shards(group, stretches).own();
    write(0);
    buffer.emplace(group, keeps, within);
    buffer->add(stretches, own, DType::f32);
    for (int64_t i = 0; i < kPieces; ++i) windows.push_back(buffer->window(0, {2, kSize / 2}, i * kSize));
  }
  void write(int round) {
    int64_t at = 0;
    for (const Part& part : parts)
      for (int64_t i = part.begin; i < part.end; ++i) own.data<float>()[at++] = float(i + 1000 * round);
  }
  void expect(int64_t piece, int round = 0) const {
    const float* const x = windows[size_t(piece)].data<float>();
    for (int64_t i = 0; i < kSize; ++i)
      if (x[i] != float(piece * kSize + i + 1000 * round))
        throw CommError(concat("element ", i, " of piece ", piece, " is ", x[i], " in round ", round));
  }
  int64_t gathered() const { return buffer->totals().bytes / (kSize * int64_t(sizeof(float))); }  // pieces
  static void run_a_kernel() { fill(Tensor({1}), 0); }

  ProcessGroup& group;
  std::vector<Stretch> stretches{};
  Tensor own;
  std::vector<Part> parts;
  std::optional<ShardedBuffers> buffer;
  Tensors windows;
};

std::string on_ranks(int n, const std::function<void(ProcessGroup&)>& f) {
  return test::run_threads(n, 1, Seconds(20), [&](Context context) {
    ProcessGroup group(threads_transport(std::move(context)));
    f(group);
  });
}

void check(bool ok, const std::string& what) {
  if (!ok) throw CommError(what);
}

TEST(ShardedBuffers, HasTheElementsOfAllRanksWhereItIsUsed) {
  for (const int ranks : {1, 2, 3, 7, 60})  // more ranks than elements of a piece
    EXPECT_SILENT(on_ranks(ranks, [](ProcessGroup& group) {
      Held held(group);
      for (int round = 0; round < 3; ++round) {
        held.buffer->begin_round();
        for (int64_t i = 0; i < kPieces; ++i) held.expect(i, round), Held::run_a_kernel();
        for (int64_t i = kPieces; i-- > 0;) held.expect(i, round), Held::run_a_kernel();
        held.write(round + 1);
        held.buffer->forget(true);
      }
    })) << ranks;
}

// Three pieces have memory; the last ones of the way there are the first ones of the way back.
TEST(ShardedBuffers, GathersAgainWhatLostItsMemory) {
  for (const bool keeps : {false, true})
    EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group) {
      Held held(group, keeps);
      for (int64_t i = 0; i < kPieces; ++i) held.expect(i), Held::run_a_kernel();
      const int64_t there = held.gathered();
      for (int64_t i = kPieces; i-- > 0;) held.expect(i), Held::run_a_kernel();
      check(there == kPieces, concat(there, " gathered on the way there"));
      const int64_t back = held.gathered() - there;
      check(back == (keeps ? 0 : kPieces - 3), concat(back, " gathered on the way back"));
    }));
}

// So a training that stops between two steps and goes on has counted as many bytes at its end as an undisturbed one.
TEST(ShardedBuffers, DoesNotCountWhatCameAheadAndIsDropped) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group) {
    Held held(group);
    held.buffer->begin_round();
    for (int round = 0; round < 4; ++round) {
      const int64_t before = held.gathered();
      for (int64_t i = 0; i < kPieces; ++i) held.expect(i), Held::run_a_kernel();
      check(held.gathered() - before == kPieces, concat(held.gathered() - before, " in round ", round));
      held.buffer->forget(true);
      if (round == 2) held.buffer->forget();
    }
  }));
}

// However many pieces one kernel is given, all stay until it has run.
TEST(ShardedBuffers, WhatAKernelIsGivenStays) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group) {
    Held held(group);
    for (int round = 0; round < 2; ++round) {  // the second one gathers ahead
      held.buffer->begin_round();
      std::vector<View> all;
      for (const Tensor& window : held.windows) all.emplace_back(window);
      for (int64_t i = 0; i < kPieces; ++i)
        check(static_cast<const float*>(all[size_t(i)].data)[kSize - 1] == float((i + 1) * kSize - 1),
              concat("piece ", i, " has gone"));
      Held::run_a_kernel();
      held.buffer->forget(true);
    }
  }));
}

TEST(ShardedBuffers, RanksThatDoNotUseItGiveWhatTheyHold) {
  for (const int ranks : {2, 3})
    EXPECT_SILENT(on_ranks(ranks, [&](ProcessGroup& group) {
      Held held(group);
      for (int round = 0; round < 4; ++round) {
        held.buffer->begin_round();
        const bool idle = round % 2 == 1 && group.rank() == ranks - 1, announced = round % 2 == 1;
        if (announced && !idle) held.buffer->announce(true);
        for (int64_t i = 0; i < kPieces && !idle; ++i) held.expect(i, round), Held::run_a_kernel();
        if (idle) held.buffer->follow();
        else if (announced) held.buffer->announce(false);
        held.write(round + 1);
        held.buffer->forget(true);
      }
    })) << ranks;
}

// As evaluations do, of which some ranks have one batch more: the next use is not in a round.
TEST(ShardedBuffers, GoesOnFromTheSamePlaceAfterRanksWereIdle) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group) {
    Held held(group);
    held.buffer->begin_round();
    for (const int64_t i : {0, 1, 2, 3, 4, 5, 3, 0, 6}) held.expect(i), Held::run_a_kernel();
    held.buffer->forget(true);
    if (group.rank() == 1) {
      held.buffer->follow();
    } else {
      held.buffer->announce(true);
      for (int64_t i = 0; i < kPieces; ++i) held.expect(i), Held::run_a_kernel();
      held.buffer->announce(false);
    }
    for (int64_t i = 0; i < kPieces; ++i) held.expect(i), Held::run_a_kernel();
  }));
}

// Also in pieces of equal size.
TEST(ShardedBuffers, AnotherOrderIsAnError) {
  const std::string cause = on_ranks(2, [](ProcessGroup& group) {
    Held held(group);
    held.expect(group.rank() == 0 ? 1 : 2);
  });
  EXPECT_MENTIONS(cause, "the ranks make different calls");
}

TEST(ShardedBuffers, WhatIsWrittenThroughAWindowStays) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& group) {
    Held held(group);
    for (const bool in_a_round : {false, true}) {
      if (in_a_round) held.buffer->begin_round();
      held.windows[2].storage()->written_by("fill");  // before it has memory, as operations that write say it
      fill(held.windows[2], in_a_round ? 9 : 8);
      if (in_a_round) held.buffer->keep_writes(), held.buffer->forget(true);
      for (const int64_t i : {3, 4, 5, 6}) held.expect(i), Held::run_a_kernel();
      for (const float x : held.windows[2].span<float>()) check(x == (in_a_round ? 9 : 8), concat("it is ", x));
    }
  }));
}

TEST(ShardedBuffers, AnotherOrderIsNamedWhereItIsAnnounced) {
  const std::string cause = on_ranks(3, [](ProcessGroup& group) {
    Held held(group);
    if (group.rank() == 2) return held.buffer->follow();
    held.buffer->announce(true);
    held.expect(group.rank() == 1 ? 3 : 2);
  });
  EXPECT_MENTIONS(cause, "rank 1 uses the weights in another order than rank 0");
}

TEST(ShardedBuffers, IsFetchedWithoutCollectives) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group) {
    Held held(group);
    held.expect(0);
    held.buffer->fetch_by([](size_t, Part part) {
      Tensor out({part.size()});
      for (int64_t i = 0; i < part.size(); ++i) out.data<float>()[i] = float(part.begin + i);
      return out;
    });
    if (group.rank() == 0) held.expect(5);
    held.buffer->fetch_by({});
    held.expect(6);
  }));
}

// Another buffer of the same object, gathered in 16 bits from the own elements of the first one.
TEST(ShardedBuffers, AreGatheredInOneOrderAndConverted) {
  for (const int ranks : {1, 2, 3, 4})
    EXPECT_SILENT(on_ranks(ranks, [&](ProcessGroup& group) {
      Held held(group, false, ranks == 4 ? 2 : 0);
      const size_t half = held.buffer->add(held.stretches, held.own, DType::bf16);
      Tensors windows;
      for (int64_t i = 0; i < kPieces; ++i) windows.push_back(held.buffer->window(half, {kSize}, i * kSize));
      const auto expect_half = [&](int64_t piece, int round) {
        Tensor wide({kSize}), expected({kSize}, DType::bf16), back({kSize});
        for (int64_t i = 0; i < kSize; ++i) wide.data<float>()[i] = float(piece * kSize + i + 1000 * round);
        copy(expected, wide), copy(wide, expected), copy(back, windows[size_t(piece)]);
        for (int64_t i = 0; i < kSize; ++i)
          check(back.data<float>()[i] == wide.data<float>()[i], concat("element ", i, " of 16-bit piece ", piece));
      };
      for (int round = 0; round < 3; ++round) {
        held.buffer->begin_round();
        const bool idle = round == 1 && group.rank() == ranks - 1, announced = round == 1 && ranks > 1;
        if (announced && !idle) held.buffer->announce(true);
        for (int64_t i = 0; i < kPieces && !(idle && announced); ++i) expect_half(i, round), held.expect(i, round);
        if (announced && idle) held.buffer->follow();
        else if (announced) held.buffer->announce(false);
        held.write(round + 1);
        held.buffer->forget(true);
      }
      held.buffer->begin_round();
      for (const int64_t i : {0, 1, 2, 3, 0}) expect_half(i, 3), Held::run_a_kernel();
      for (int64_t i = 0; i < kSize; ++i) held.windows[0].data<float>()[i] = float(i + 4000);
      held.windows[0].storage()->written_by("the test");
      held.buffer->keep_writes();
      expect_half(0, 4);
    })) << ranks;
}

TEST(ShardedBuffers, RanksThatKeepWhatWasGatheredMustDivideAll) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& group) {
    EXPECT_MENTIONS(ringtape::test::message_of<UsageError>([&] { ShardedBuffers(group, false, 2); }),
                    "2 ranks that keep what was gathered do not divide 3");
  }));
}

TEST(ShardedBuffers, AUseAfterItsEndIsAnError) {
  EXPECT_SILENT(on_ranks(1, [](ProcessGroup& group) {
    Held held(group);
    held.expect(1);
    held.buffer.reset();
    EXPECT_MENTIONS(ringtape::test::message_of<Error>([&] { held.expect(1); }), "after the end of the training");
  }));
}

}  // namespace
}  // namespace ringtape::comm
