#pragma once
#include <exception>
#include <span>
#include <vector>

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
// host, which are sent while the device computes. Encoded images are decoded by gather(); a random crop of one is cut
// from the whole image, whatever its size, and is the crop that the kernel would cut from it.
class BatchMaker {
 public:
  BatchMaker(const Dataset& data, const LoaderConfig& config);

  bool on_host() const { return device_.type == DeviceType::cpu; }
  bool resident() const { return !encoded_ && !on_host() && images_.device() == device_; }
  int64_t waiting_bytes() const;  // of a sample, in a batch that gather() has made
  std::shared_ptr<Inbox> inbox(int64_t samples) const;  // for chunks of at most `samples`; null if nothing is sent

  // `samples`: i64, contiguous, on the host; for finish() with a resident set, on its device. gather() may run on any
  // thread; it does nothing for a resident set.
  void gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const;
  void finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const;

 private:
  struct Layout;  // positions in the bytes that are sent
  // Whether the host prepares the bytes of the images, because they are decoded, transformed or sent.
  bool gathers() const { return encoded_ || !transforms_.empty() || !on_host(); }
  // Whether random crops are cut from the encoded images, of any size.
  bool cuts() const { return encoded_ && !views_.empty(); }
  int64_t copied() const;  // bytes of all copies of an image
  // Writes the samples' images, decoded and transformed: for each copy, those of all samples.
  void collect(uint8_t* to, std::span<const int64_t> samples, int64_t epoch) const;
  void decode(int64_t sample, int64_t epoch, std::span<uint8_t* const> copies) const;
  // `gathered`: what collect() has written, on the device; null: the images are those of the set.
  void make(Chunk& chunk, uint8_t* gathered, View samples, int64_t epoch) const;

  Tensor images_, labels_;
  std::shared_ptr<const EncodedImages> encoded_;  // null: the images are kept
  Shape image_;
  Tensor table_;  // f32 (C, 256): the normalised value of each byte
  Device device_;
  Augmentation augmentation_;
  std::vector<ViewAugmentation> views_;
  Transforms transforms_;
  std::vector<Shape> copies_;  // of an image, among what collect() writes: one, or one for each view
  uint64_t seed_;
};

}  // namespace ringtape
