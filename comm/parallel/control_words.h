#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/readback.h"
#include "core/tensor.h"

namespace ringtape::comm {

// What ranks tell each other of each step, as elements in front of the flat gradients, of their dtype: they become sums
// as these do, which are exact for small whole numbers.
class ControlWords {
 public:
  using Riders = std::array<double, 5>;  // small whole numbers that the caller wants summed
  // A rank's part of a step.
  struct Step {
    Tensor loss;           // (): of its samples, weighted by their share of all; undefined: 0
    int64_t samples = 0;   // of this rank
    int64_t expected = 0;  // of all ranks together
    Riders riders = {};
  };

  static int64_t size(int64_t parameters);  // elements, so that what follows begins on a 64-byte boundary

  // `memory`: size(parameters) elements. `prompt`: the host waits for the words of each step, on a GPU, too.
  ControlWords(Tensor memory, int64_t parameters, bool prompt);

  const Tensor& memory() const { return memory_; }
  Tensor used(int64_t parameter) const;  // (): how many ranks have its gradient
  // `used`: by parameter, whether this rank has its gradient.
  void write(const Step& step, const std::vector<char>& used);
  // Once they are sums. Throws CommError if the ranks together did not have Step::expected samples.
  void read();
  std::vector<char> reached() const;  // likewise, waits: by parameter, whether any rank has its gradient

  const Tensor& loss() const { return loss_; }      // (): the sum, of the step that was read
  const Riders& riders() const { return riders_; }  // the sums; on a GPU of the step before, unless `prompt`

 private:
  void look(int64_t expected);

  const Tensor memory_;
  const int64_t parameters_;
  const bool waits_;             // for a later step, instead of letting the host wait
  std::vector<double> written_;  // last,
  Tensor on_device_;             // on the device
  Tensor loss_;
  Readback pending_;
  int64_t expected_ = 0, expected_before_ = 0;
  Riders riders_{};
};

}  // namespace ringtape::comm
