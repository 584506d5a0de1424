#include "emulation/wgmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "core/text.h"
#include "emulation/arena.h"
#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/emulation.h"
#include "emulation/shared.h"
#include "emulation/tensor_map.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

constexpr int kLanes = 32, kWarps = 4, kRows = 16, kDepth = 16;
constexpr uint32_t kPoison = 0x7fbfdead;  // NaN
constexpr int kRegistersOfBlock = 65536;

enum class Step : uint8_t { fence, multiply, commit, wait, elect, registers };
struct Request {  // of a lane
  Step step;
  WgmmaShape shape = {};
  float* d = nullptr;
  uint64_t a = 0, b = 0;
  bool adds = false;
  int number = 0;  // of groups or registers
  Place place = {};
  const void* pc = nullptr;
  bool elected = false;
  bool same(const Request& o) const { return shape == o.shape && a == o.a && b == o.b && adds == o.adds; }
};

// Registers of a warp that products write: none are to be touched until the wait.
struct Sums {
  std::array<float*, kLanes> registers;
  std::vector<float> values;  // by lane
  int products = 0;           // that go on
  size_t of_lane() const { return values.size() / kLanes; }
};
using Chunks =
    std::vector<const char*>;  // 16 bytes each: by outer index, or by depth if they lie along the outer index
struct Product {
  Request by;
  Sums* sums;
  uint64_t group;
  Chunks a, b;
  bool done = false;
};
struct Warp {
  std::list<Sums> sums;
  std::vector<Product> products;  // in their order
  uint64_t group = 0;             // the open one
  bool fenced = false;
  std::vector<Request> issued;  // products, for comparison with the other warps
  int registers = 0;
  Place registers_at;
};
std::array<Warp, kMaxThreads / kLanes>& warps = *new std::array<Warp, kMaxThreads / kLanes>;
bool used = false;  // in this block

[[noreturn]] void refuse(const char* kind, Place place, const std::string& what) {
  report(kind, place, what);
  abandon();
}

bool happens_now() { return schedule() == Schedule::reverse || (schedule() == Schedule::random && random_below(2)); }

// The chunks of rows [first, first + rows) of an operand that a descriptor names.
Chunks chunks_of(uint64_t descriptor, bool outer, int first, int rows, Place place) {
  const auto bytes = [descriptor](int bit) { return uint32_t(descriptor >> bit & 0x3fff) << 4; };
  const uint32_t start = bytes(0), leading = bytes(16), stride = bytes(32);
  if (descriptor >> 62 != 1) refuse("descriptor", place, "expected a layout swizzled by 128 bytes");
  if ((descriptor >> 49 & 7) != 0 || (start & 0x380) != 0)
    refuse("descriptor", place, "begins inside of a pattern of 1024 bytes, of which the manual does not say enough");
  if (gpu().other_descriptors) outer = false;
  Chunks out;
  const auto add = [&](uint32_t at) {
    const uint32_t address = swizzled(at);
    const char* const p = arena().shared + address;
    if (address + 16 > kSharedDistance) refuse("descriptor", place, "beyond the shared memory of a block");
    out.push_back(p);
  };
  if (outer)
    for (int k = 0; k < kDepth; ++k)
      for (int m = first; m < first + rows; m += 8)
        add(start + uint32_t(m % 64 * 2 + k % 8 * 128) + uint32_t(m / 64) * leading + uint32_t(k / 8) * stride);
  else
    for (int m = first; m < first + rows; ++m)
      for (int k = 0; k < kDepth; k += 8) add(start + uint32_t(m % 8 * 128 + k * 2) + uint32_t(m / 8) * stride);
  return out;
}

// (rows, depth), or with the depth first.
std::vector<TensorNumber> numbers_of(const Chunks& chunks, TensorType type, bool outer, int rows) {
  std::vector<TensorNumber> out(size_t(rows) * kDepth);
  for (size_t i = 0; i < chunks.size(); ++i) {
    uint16_t bits[8];
    std::memcpy(bits, chunks[i], sizeof bits);
    for (size_t j = 0; j < 8; ++j) {
      const size_t at = i * 8 + j, row = outer ? at % size_t(rows) : at / kDepth,
                   k = outer ? at / size_t(rows) : at % kDepth;
      out[row * kDepth + k] = tensor_number(type, bits[j]);
    }
  }
  return out;
}

void happen(Product& p) {
  if (p.done) return;
  p.done = true;
  const WgmmaShape& s = p.by.shape;
  const auto a = numbers_of(p.a, s.type, s.a_outer, kRows), b = numbers_of(p.b, s.type, s.b_outer, s.columns);
  const TensorColumns columns(b.data(), s.columns, kDepth);
  std::vector<float> sums(static_cast<size_t>(s.columns));
  for (int row = 0; row < kRows; ++row) {
    // Lane 4 g + t has of each 8 columns 2 t and 2 t + 1, of rows g and g + 8.
    const auto each = [&](const auto& f) {
      for (int column = 0; column < s.columns; ++column) {
        const size_t lane = size_t(row % 8 * 4 + column % 8 / 2), i = size_t(column / 8 * 4 + row / 8 * 2 + column % 2);
        f(sums[size_t(column)], p.sums->values[lane * p.sums->of_lane() + i]);
      }
    };
    each([&](float& sum, float value) { sum = p.by.adds ? value : 0; });
    columns.add_products(s.type, a.data() + row * kDepth, sums.data());
    each([](float sum, float& value) { value = sum; });
  }
}

// What concerns the whole warp is done by its last lane: a lane that does not know what it should is likely another.
struct AsLastLane {
  const int before = block.current;
  explicit AsLastLane(int first) { block.current = first + kLanes - 1; }
  ~AsLastLane() { block.current = before; }
};

void verify_untouched(const Sums& s, const Request& by) {
  for (float* const lane : s.registers)
    for (size_t i = 0; i < s.of_lane(); ++i)
      if (std::bit_cast<uint32_t>(lane[i]) != kPoison)
        refuse("sums-touched", by.place, "registers of a product have been written before the wait for it");
}

Sums* sums_of(Warp& w, const Thread* lanes, const Request& by) {
  for (Sums& s : w.sums)
    if (s.registers[0] == by.d) return &s;
  if (!w.fenced) refuse("wgmma-fence", by.place, "the first product of registers without a wgmma_fence before it");
  Sums& s = w.sums.emplace_back();
  const size_t count = size_t(by.shape.columns) / 2;
  s.values.resize(count * kLanes);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    s.registers[lane] = reinterpret_cast<const Request*>(lanes[lane].value)->d;
    std::memcpy(&s.values[lane * count], s.registers[lane], count * sizeof(float));
    std::fill_n(s.registers[lane], count, std::bit_cast<float>(kPoison));
  }
  return &s;
}

void compare_with_others(int first, const Request& by) {
  const size_t me = size_t(first) / kLanes, number = warps[me].issued.size();
  if (block.size % (kLanes * kWarps) != 0)
    refuse("warpgroup", by.place, concat("a block of ", block.size, " threads is not made of warpgroups"));
  for (size_t i = me / kWarps * kWarps; i < (me / kWarps + 1) * kWarps; ++i)
    if (warps[i].issued.size() > number && !warps[i].issued[number].same(by))
      refuse("warpgroup", by.place, "the warps of a warpgroup multiply different operands");
  warps[me].issued.push_back(by);
}

// Chunks are read as matrices of 8 rows of 16 bytes. Each warp reads its rows of a; b is read once for all of them.
void count(const Product& p, bool first_warp) {
  if (!traffic) return;
  const auto read = [](const Chunks& chunks, bool outer) {
    const size_t step = outer ? chunks.size() / kDepth : kDepth / 8;  // from row to row of a matrix
    for (size_t m = 0; m < chunks.size() / 8; ++m) {
      const void* rows[8];
      for (size_t i = 0; i < 8; ++i) rows[i] = chunks[(m / step * 8 + i) * step + m % step];
      count_matrix_rows(rows, 1);
    }
  };
  read(p.a, p.by.shape.a_outer);
  if (first_warp) read(p.b, p.by.shape.b_outer);
  traffic->products += first_warp;
  traffic->multiplied += uint64_t(kRows) * kDepth * uint64_t(p.by.shape.columns);
}

void multiply(const Thread* lanes, int first, const Request& by) {
  Warp& w = warps[size_t(first) / kLanes];
  for (int i = 0; i < kLanes; ++i)
    if (!reinterpret_cast<const Request*>(lanes[i].value)->same(by))
      refuse("warpgroup", by.place, "the lanes of a warp have different descriptors");
  compare_with_others(first, by);
  Product p{by, nullptr, w.group, chunks_of(by.a, by.shape.a_outer, first / kLanes % kWarps * kRows, kRows, by.place),
            chunks_of(by.b, by.shape.b_outer, 0, by.shape.columns, by.place)};
  count(p, first / kLanes % kWarps == 0);
  if (checker)
    for (const Chunks* chunks : {&p.a, &p.b})
      for (const char* c : *chunks) checker->begin_async_read(c, 16, by.pc);
  p.sums = sums_of(w, lanes, by);
  ++p.sums->products;
  w.products.push_back(std::move(p));
  if (std::all_of(w.products.begin(), w.products.end() - 1, [](const Product& e) { return e.done; }) && happens_now())
    happen(w.products.back());
}

void wait(Warp& w, int first, const Request& by) {
  for (Product& p : w.products)
    if (p.group + uint64_t(by.number) < w.group) happen(p);
  std::erase_if(w.products, [&](const Product& p) {
    if (p.group + uint64_t(by.number) >= w.group) return false;
    if (checker)
      for (const Chunks* chunks : {&p.a, &p.b})
        for (const char* c : *chunks) checker->end_async_read(c, 16, p.by.pc);
    --p.sums->products;
    return true;
  });
  std::erase_if(w.sums, [&](Sums& s) {
    if (s.products > 0) return false;
    verify_untouched(s, by);
    for (size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(s.registers[lane], &s.values[lane * s.of_lane()], s.of_lane() * sizeof(float));
    w.fenced = false;
    return true;
  });
  if (!checker) return;
  Stamp stamp;  // that the operands have been read, every lane knows
  checker->release(stamp);
  for (int i = 0; i < kLanes; ++i) checker->acquire(first + i, stamp);
}

void limit(int first, const Request& by) {
  Warp& w = warps[size_t(first) / kLanes];
  if (by.number < 24 || by.number > 256 || by.number % 8 != 0)
    refuse("registers", by.place, concat(by.number, " registers: expected a multiple of 8 from 24 to 256"));
  w.registers = by.number, w.registers_at = by.place;
  int sum = 0;
  for (int i = 0; i < block.size / kLanes; ++i) sum += warps[size_t(i)].registers * kLanes;
  if (sum > kRegistersOfBlock)
    refuse("registers", by.place, concat(sum, " registers of a block, at most ", kRegistersOfBlock));
}

void meet(Request& mine) {
  used = true;
  warp_operation(WarpOperation::warpgroup, ~0u, reinterpret_cast<uint64_t>(&mine), 0, mine.place);
}

}  // namespace

void execute_warpgroup(Thread* lanes) {
  const int first = int(lanes - block.threads.data());
  Warp& w = warps[size_t(first) / kLanes];
  const AsLastLane last(first);
  Request& by = *reinterpret_cast<Request*>(lanes[0].value);
  switch (by.step) {
    case Step::fence: w.fenced = true; return;
    case Step::commit: ++w.group; return;
    case Step::multiply: return multiply(lanes, first, by);
    case Step::wait: return wait(w, first, by);
    case Step::registers: return limit(first, by);
    case Step::elect: {
      const size_t lane = schedule() == Schedule::forward ? 0 : schedule() == Schedule::reverse ? 31 : random_below(32);
      reinterpret_cast<Request*>(lanes[lane].value)->elected = true;
    }
  }
}

void multiply_async(const WgmmaShape& shape, float* d, uint64_t a, uint64_t b, bool adds, Place place) {
  Request mine{Step::multiply, shape, d, a, b, adds, 0, place, __builtin_return_address(0)};
  meet(mine);
}
void fence_products(Place place) {
  Request mine{.step = Step::fence, .place = place};
  meet(mine);
}
void commit_products(Place place) {
  Request mine{.step = Step::commit, .place = place};
  meet(mine);
}
void wait_for_products(int groups, Place place) {
  Request mine{.step = Step::wait, .number = groups, .place = place};
  meet(mine);
}
bool elect(Place place) {
  Request mine{.step = Step::elect, .place = place};
  meet(mine);
  return mine.elected;
}
void limit_registers(int number, Place place) {
  Request mine{.step = Step::registers, .number = number, .place = place};
  meet(mine);
}

void begin_wgmma() {
  if (!used) return;
  for (Warp& w : warps) w = {};
  used = false;
}

void finish_wgmma(int thread) {
  if (!used) return;
  const Warp& w = warps[size_t(thread) / kLanes];
  if (thread % kLanes == 0 && !w.products.empty())
    report("wgmma-outlives-block", w.products[0].by.place, "a warp returns before its products have been waited for");
  if (block.live > 1) return;
  for (size_t i = 0; i < size_t(block.size) / kLanes; ++i) {  // the last thread
    const Warp &mine = warps[i], &first = warps[i / kWarps * kWarps];
    if (mine.issued.size() != first.issued.size())
      report("warpgroup", (mine.issued.empty() ? first : mine).issued[0].place,
             "the warps of a warpgroup have not the same products");
    if (mine.registers != first.registers)
      report("registers", (mine.registers ? mine : first).registers_at,
             "the warps of a warpgroup do not set the same number");
  }
}

}  // namespace ringtape::emulation
