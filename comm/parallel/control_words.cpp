#include "comm/parallel/control_words.h"

#include <algorithm>
#include <utility>

#include "autograd/create.h"
#include "core/check.h"
#include "core/recording.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

enum Word : int64_t { kLoss, kSamples, kRiders, kUsed = kRiders + int64_t(ControlWords::Riders{}.size()) };
// kUsed + i: how many ranks have a gradient of parameter i

constexpr int64_t kAligned = 16;  // elements: gradients begin on a 64-byte boundary

// (n): the first ones, f64; waits for a device.
Tensor numbers(Readback& words) {
  const Tensor host = words.get();
  Tensor out(host.shape(), DType::f64);
  copy(out, host);
  return out;
}

}  // namespace

int64_t ControlWords::size(int64_t parameters) { return (kUsed + parameters + kAligned - 1) / kAligned * kAligned; }

ControlWords::ControlWords(Tensor memory, int64_t parameters, bool prompt)
    : memory_(std::move(memory)), parameters_(parameters), waits_(memory_.device().type != DeviceType::cpu && !prompt),
      loss_(zeros({}, memory_.dtype(), memory_.device())) {}

Tensor ControlWords::used(int64_t parameter) const { return memory_.window({}, {}, kUsed + parameter); }

void ControlWords::write(const Step& step, const std::vector<char>& used) {
  std::vector<double> words(size_t(memory_.size()));
  words[kSamples] = double(step.samples);
  std::ranges::copy(step.riders, words.begin() + kRiders);
  std::ranges::copy(used, words.begin() + kUsed);
  expected_ = step.expected;
  if (words != written_) {
    const Tensor host = from_host(words, {int64_t(words.size())});
    Tensor same(host.shape(), memory_.dtype());
    copy(same, host);
    on_device_ = memory_.device() == Device{} ? same : same.copy_to(memory_.device());
    written_ = std::move(words);
  }
  copy(memory_, on_device_);
  if (step.loss.defined()) copy(memory_.window({}, {}, kLoss), step.loss);
}

void ControlWords::read() {
  // What a recorded write() copies stays where it is.
  at_each_launch([this, expected = expected_, written = on_device_] { look(expected); });
  loss_ = empty_like(loss_);
  copy(loss_, memory_.window({}, {}, kLoss));
}

void ControlWords::look(int64_t expected) {
  Readback now(memory_.window({kUsed}, {1}));
  Readback& known = waits_ ? pending_ : now;
  if (waits_) std::swap(expected, expected_before_);
  if (known.defined()) {
    const Tensor words = numbers(known);
    const double* const w = words.data<double>();
    RT_CHECK_AS(CommError, int64_t(w[kSamples]) == expected, "the ranks had ", int64_t(w[kSamples]),
                " samples in a step, expected ", expected, "; they must read the same data with the same --batch-size");
    std::copy(w + kRiders, w + kUsed, riders_.begin());
  }
  if (waits_) pending_ = std::move(now);
}

std::vector<char> ControlWords::reached() const {
  Readback readback(memory_.window({kUsed + parameters_}, {1}));
  const Tensor words = numbers(readback);
  std::vector<char> out;
  for (int64_t i = 0; i < parameters_; ++i) out.push_back(words.data<double>()[kUsed + i] != 0);
  return out;
}

}  // namespace ringtape::comm
