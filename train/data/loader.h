#pragma once
#include <iterator>
#include <memory>

#include "core/part.h"
#include "kernels/image_changes.h"
#include "train/data/dataset.h"
#include "train/data/labels.h"
#include "train/data/transform.h"

namespace ringtape {

struct Batch {
  Tensor x;                 // f32 (B, H, W, C), normalised per channel; undefined with views
  Tensors views;            // or one such tensor per view
  Tensor y;                 // i64 (B)
  Tensor other;             // i64 (B): labels of the images that these are mixed with; undefined: they are not mixed
  double share = 1;         // of y, if they are
  Tensor scale;             // Labels::scale; undefined without weights of classes
  int64_t index = 0;        // within the epoch
  int64_t global_size = 0;  // size of this batch over all ranks

  Labels labels() const { return {y, other, share, scale}; }
  Tensors images() const { return views.empty() ? Tensors{x} : views; }
};

// Changes of training images with labels, besides their Augmentation. An image is cropped and recoloured, then has its
// Augmentation, whose cutout comes last, then the policy; it is normalised, erased and mixed.
struct ImageChanges {
  ViewAugmentation view = {.crop_low = 1, .flip = 0, .jitter = 0, .gray = 0};  // of the image's size
  ImagePolicy policy = {};
  double erasing = 0;  // probability that a random rectangle is set to the mean
  Mixing mixing = {};  // with the image before it in the batch of all ranks

  bool crops() const { return view.crop_low < 1; }
  bool recolours() const { return view.jitter > 0 || view.gray > 0 || view.blur > 0 || view.solarize > 0; }
};

struct LoaderConfig {
  int64_t batch_size = 1;
  bool shuffle = false;
  int64_t shuffle_buffer = 0;  // see shuffled()
  bool balanced = false;       // instead of shuffled: see balanced(); the data set is on a CPU then
  bool drop_last = false;      // leave out the last batch if it is not full
  uint64_t seed = 0;
  int workers = 1;                     // background threads; 0: next() makes the batches
  int64_t ahead = int64_t{512} << 20;  // bytes of batches that may wait, though at least two batches do
  Device device = {};                  // device of the batches
  Augmentation augmentation = {};
  ImageChanges changes = {};
  // If not empty: replaces augmentation and changes; each entry gives one random view of each image, of the image's
  // size or its own.
  std::vector<ViewAugmentation> views = {};
  Transforms transforms = {};  // before these, of the bytes of each image and view; the data set is on a CPU then
  // Rank r of `ranks` gets part r of each batch of batch_size samples; of the last batch, the part may be empty.
  int rank = 0, ranks = 1;
  // Each batch consists of so many parts, of which a rank gets part_of(shares, ranks, rank); 0: of one for each rank.
  int64_t shares = 0;
  std::vector<double> class_weights = {};  // in the loss; empty: 1 each
};
// The samples of a batch that a rank gets.
Part own_rows(int64_t batch, const LoaderConfig& config);

// Delivers the chosen samples of a data set in batches. Their order and augmentation depend only on (seed, epoch) and
// the list of samples: not on workers, device, timing or the number of ranks.
class Loader {
 public:
  // One pass over the samples; workers fill a bounded queue ahead of the consumer. May be destroyed at any point.
  class Epoch {
   public:
    explicit Epoch(std::unique_ptr<class EpochState> state);
    Epoch(Epoch&&) noexcept;
    ~Epoch();
    // The next batch; null at the end and after an error. Valid until the next call (its tensors for as long as they
    // are held).
    const Batch* next();

    struct Iterator {
      Epoch* epoch;
      const Batch* batch;
      const Batch& operator*() const { return *batch; }
      void operator++() { batch = epoch->next(); }
      bool operator==(std::default_sentinel_t) const { return !batch; }
    };
    Iterator begin() { return {this, next()}; }
    std::default_sentinel_t end() const { return {}; }

    // How many images a second all workers make together when they do not wait; 0: none yet.
    double images_per_s() const;

   private:
    std::unique_ptr<EpochState> state_;
  };

  // Throws UsageError for a batch size below the number of ranks or above that of samples, ShapeError for a sample that
  // is not in the set and for views that the images do not permit, DeviceError for a set on a device other than the
  // batches'.
  Loader(const Dataset& data, std::vector<int64_t> samples, LoaderConfig config);

  int64_t samples() const;  // over all ranks
  int64_t batches() const;  // in an epoch
  // Starts at batch `first_batch`, 0 to batches(), to resume within an epoch.
  Epoch epoch(int64_t number, int64_t first_batch = 0) const;

 private:
  struct Source;
  friend class EpochState;
  std::shared_ptr<const Source> source_;
};

std::vector<int64_t> all_samples(const Dataset& data);  // 0 .. N-1

// Moves the images of both splits to `device`, unless it is a CPU, if they need at most a quarter of its free memory.
// Loaders then make batches there, and only the order of the samples is sent.
void keep_on_device(Splits& data, Device device);

}  // namespace ringtape
