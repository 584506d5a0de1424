#pragma once
#include <exception>
#include <span>

#include "train/data/loader.h"

namespace ringtape {

// Consecutive batches of an epoch.
struct Chunk {
  int64_t first = 0, count = 0;       // batches
  Tensor x;                           // f32 (samples, H, W, C), augmented and normalised;
  Tensors views;                      // or one such tensor per view
  Tensor y;                           // i64 (samples)
  std::shared_ptr<HostBuffer> bytes;  // or the raw data to send to the device: samples, labels, images
  std::exception_ptr error;           // why the batches could not be made
  bool ready = false;
};

// Turns samples into tensors on a device. On a CPU, gather() does all the work. On other devices, kernels in finish()
// do it: from the data set if it is resident on the device, else from the bytes that gather() has collected on the
// host, which are sent while the device computes.
class BatchMaker {
 public:
  BatchMaker(const Dataset& data, const LoaderConfig& config);

  bool on_host() const { return device_.type == DeviceType::cpu; }
  bool resident() const { return !on_host() && images_.device() == device_; }
  std::shared_ptr<Inbox> inbox(int64_t samples) const;  // for chunks of at most `samples`; null if nothing is sent
  Shape image() const { return images_.shape().without(0); }

  // `samples`: i64, contiguous, on the host; for finish() with a resident set, on its device. gather() may run on any
  // thread; it does nothing for a resident set.
  void gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const;
  void finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const;

 private:
  struct Layout;  // positions in the bytes that are sent
  int64_t copies() const { return transforms_.empty() || views_.empty() ? 1 : int64_t(views_.size()); }
  // Writes copies() times the samples' images, transformed, to `to`: (copies, samples, H, W, C).
  void collect(uint8_t* to, std::span<const int64_t> samples, int64_t epoch) const;
  void make(Chunk& chunk, View images, View samples, bool gathered, int64_t epoch) const;

  Tensor images_, labels_;
  Tensor table_;  // f32 (C, 256): the normalised value of each byte
  Device device_;
  Augmentation augmentation_;
  std::vector<ViewAugmentation> views_;
  Transforms transforms_;
  uint64_t seed_;
};

}  // namespace ringtape
