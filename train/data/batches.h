#pragma once
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "kernels/erase.h"
#include "kernels/mix.h"
#include "train/data/loader.h"

namespace ringtape {

// Consecutive batches of an epoch.
struct Chunk {
  int64_t first = 0, count = 0;       // batches
  Tensor x;                           // f32 (samples, H, W, C), augmented and normalised;
  Tensors views;                      // or one such tensor per view
  Tensor y;                           // i64 (samples), also of those that are made only to be mixed with others
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
  int64_t waiting_bytes() const;                        // of a sample, in a batch that gather() has made
  std::shared_ptr<Inbox> inbox(int64_t samples) const;  // for chunks of at most `samples`; null if nothing is sent

  // `samples`: i64, contiguous, on the host; for finish() with a resident set, on its device. gather() may run on any
  // thread; it does nothing for a resident set.
  void gather(Chunk& chunk, const Tensor& samples, int64_t epoch) const;
  void finish(Chunk& chunk, const Tensor& samples, int64_t epoch, Inbox* inbox) const;

  // Whether the images of a batch are mixed. Then the samples of each batch begin with the one that is mixed with its
  // first image, and is no part of it.
  bool mixes() const { return changes_.mixing.any(); }
  Mixture mixture(int64_t epoch, int64_t batch) const;

 private:
  // One of several kernels that images pass through: (y, images, samples, table, epoch, whether `images` are those of
  // the samples).
  using Stage = std::function<void(View, View, View, View, uint64_t, bool)>;
  struct Layout;  // positions in the bytes that are sent
  // Whether the host prepares the bytes of the images, because they are decoded, transformed, sent or drawn again.
  bool gathers() const { return encoded_ || !transforms_.empty() || !on_host() || balanced_; }
  // Whether random crops are cut from the encoded images, of any size.
  bool cuts() const { return encoded_ && !crops_.empty(); }
  int64_t copied() const;  // bytes of all copies of an image
  // Writes the samples' images, decoded and transformed: for each copy, those of all samples.
  void collect(uint8_t* to, std::span<const int64_t> samples, int64_t epoch) const;
  void decode(int64_t sample, int64_t epoch, std::span<uint8_t* const> copies) const;
  // `gathered`: what collect() has written, on the device; null: the images are those of the set.
  void make(Chunk& chunk, uint8_t* gathered, View samples, int64_t epoch) const;
  std::vector<Stage> make_stages();
  Tensor changed(View images, View samples, int64_t epoch, bool gathered) const;  // by all stages, and erased
  Tensor mixed(const Chunk& chunk, const Tensor& x, int64_t epoch) const;

  Tensor images_, labels_;
  std::shared_ptr<const EncodedImages> encoded_;  // null: the images are kept
  Interpolation interpolation_;                   // of random crops
  std::shared_ptr<const ImageCache> cache_;       // the file that images_ are of, if they are read from it
  Shape image_;
  Tensor table_;  // f32 (C, 256): the normalised value of each byte
  Tensor bytes_;  // u8 (C, 256): each byte itself
  Device device_;
  Augmentation augmentation_;
  ImageChanges changes_;
  std::vector<ViewAugmentation> views_;
  std::vector<ViewAugmentation> crops_;  // those that crop: the views, or the changes'
  Transforms transforms_;
  std::vector<Shape> copies_;  // of an image, among what collect() writes: one, or one for each view
  uint64_t seed_;
  bool balanced_;
  int64_t own_batch_;  // this rank's rows of a batch, except the last one
  Erasing erasing_;
  std::vector<Stage> stages_;
};

}  // namespace ringtape
