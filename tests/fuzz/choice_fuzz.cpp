// RINGTAPE_ALLREDUCE, and that whatever it says every size has an algorithm. The first byte picks ranks and transport.
#include "comm/choice.h"
#include "tests/fuzz/target.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const auto bits = uint8_t(input[0]);
  const bool shares = (bits & 3) < 2;
  const int ranks = 1 + (bits >> 2 & 15), island = bits & 64 ? std::max(1, ranks / 2) : ranks;
  read_or_refuse([&] {
    const comm::Choice choice({.shares_memory = shares}, ranks, island, input.substr(1));
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 14, int64_t{1} << 30})
      for (const bool deterministic : {false, true}) {
        const comm::Operation operation{.kind = comm::Collective::all_reduce, .dtype = DType::f32, .count = n};
        require(choice(operation, deterministic).all_reduce);
      }
  });
}
