#pragma once
#include <cstdint>
#include <vector>

#include "core/dtype.h"

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). A
// number depends only on its key and counter. So every device and any number of threads, ranks and workers give the
// same numbers, and a resumed run only needs its position.
namespace ringtape {

struct Philox4 {
  uint32_t x[4];
};

// The 128-bit block numbered `counter` of stream `stream` under the key `seed`.
RT_HD inline Philox4 philox(uint64_t seed, uint64_t stream, uint64_t counter) {
  uint32_t c0 = uint32_t(counter), c1 = uint32_t(counter >> 32), c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = uint32_t(p1), c2 = n2, c3 = uint32_t(p0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform over the multiples of 2^-24 in [0, 1).
RT_HD inline float uniform_from_bits(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// The purpose of a stream of numbers. Different streams with the same seed share no numbers.
enum class Stream : uint64_t {
  tensors = 1,    // default_generator(): initial weights, dropout, rand and randn
  shuffle = 2,    // order of an epoch
  split = 3,      // which samples go to the validation set
  synthetic = 4,  // generated data sets
  test = 5,
  augment = 6,      // augmentation of training images
  rows = 7,         // assignment of the rows of a batch to ranks
  powersgd = 8,     // initial matrices of compressed gradients
  views = 9,        // random views of images
  transforms = 10,  // a program's own transforms of images
  policy = 11,      // operations on training images
  erasing = 12,     // erased parts of training images
  mixing = 13,      // mixtures of the images of a batch
  shards = 14,      // order of files, and of samples near each other
  balance = 15,     // draws of samples, each class as often as the others
  masks = 16,       // parts of images that a method hides
};

// A position in a stream: element i of a draw comes from block counter + i / 4.
struct RandomState {
  uint64_t seed = 0;
  Stream stream = Stream::tensors;
  uint64_t counter = 0;
  // While a graph is recorded: where each of its launches begins, from which `counter` counts. It must outlive the
  // graph.
  const RandomState* base = nullptr;

  RandomState placed() const { return base ? RandomState{base->seed, base->stream, base->counter + counter} : *this; }
};

// Hands out non-overlapping parts of a stream.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, Stream stream = Stream::tensors) : state_{seed, stream, 0} {}
  RandomState reserve(int64_t numbers) {  // the state to draw `numbers` 32-bit numbers from
    const RandomState here = state_;
    state_.counter += (uint64_t(numbers) + 3) / 4;
    return here;
  }
  const RandomState& state() const { return state_; }
  void set_state(const RandomState& state) { state_ = state; }

 private:
  RandomState state_;
};

// A uniformly random order of 0 .. n-1 that depends only on the arguments (Fisher-Yates).
std::vector<int64_t> permutation(int64_t n, uint64_t seed, Stream stream, uint64_t epoch);

}  // namespace ringtape
