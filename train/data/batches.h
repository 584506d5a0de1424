#pragma once
#include <exception>
#include <span>

#include "train/data/loader.h"

namespace ringtape {

// Some batches of an epoch, one after the other.
struct Chunk {
  int64_t first = 0, count = 0;       // batches
  Tensor x;                           // f32 (samples, H, W, C), augmented and normalised,
  Tensors views;                      // or so many of them
  Tensor y;                           // i64 (samples)
  std::shared_ptr<HostBuffer> bytes;  // or what they are made of, to be sent: samples, labels, images
  std::exception_ptr error;           // what prevented them
  bool ready = false;
};

// Turns samples into tensors on a device. On a CPU, gather() makes them. Elsewhere kernels do, in
// finish(): from the set, where it lies on the device, or from the bytes that gather() has
// collected on the host, which travel while the device computes.
class BatchMaker {
 public:
  BatchMaker(const Dataset& data, const LoaderConfig& config);

  bool on_host() const { return device_.type == DeviceType::cpu; }
  bool resident() const { return !on_host() && images_.device() == device_; }
  std::shared_ptr<Inbox> inbox(int64_t samples) const;  // for chunks of so many at most; null where nothing travels
  Shape image() const { return images_.shape().without(0); }

  // `samples`: i64, contiguous, on the host; for a finish() of a resident set, on its device. gather() may run on any
  // thread; it does nothing for a resident set.
  void gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const;
  void finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const;

 private:
  struct Layout;  // of the bytes that are sent
  void make(Chunk& chunk, View images, View samples, bool gathered, int64_t epoch) const;

  Tensor images_, labels_;
  Tensor table_;  // f32 (C, 256): what becomes of each byte
  Device device_;
  Augmentation augmentation_;
  std::vector<ViewAugmentation> views_;
  uint64_t seed_;
};

}  // namespace ringtape
