#pragma once
#include <iterator>
#include <memory>

#include "kernels/random_view.h"
#include "train/data/dataset.h"

namespace ringtape {

struct Batch {
  Tensor x;           // f32 (B, H, W, C), normalised per channel; undefined where there are views
  Tensors views;      // or so many of them
  Tensor y;           // i64 (B)
  int64_t index = 0;  // within the epoch
  int64_t whole = 0;  // samples of all ranks' batches of this index

  Tensors images() const { return views.empty() ? Tensors{x} : views; }
};

struct LoaderConfig {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // leave out a last batch that is not full
  uint64_t seed = 0;
  int workers = 1;     // background threads; 0: batches are made when they are asked for
  Device device = {};  // where batches are to lie
  Augmentation augmentation = {};
  // any: instead of augmentation, so many random views of each image, of its size.
  std::vector<ViewAugmentation> views = {};
  // Of each batch of batch_size samples, rank r of so many gets part r; that of the last may be empty.
  int rank = 0, ranks = 1;
};

// Hands out the chosen samples of a data set in batches. What comes in which order, and how it is augmented, depends
// only on (seed, epoch) and the sample list: not on workers, device, timing or the number of ranks.
class Loader {
 public:
  // One pass over the samples; workers fill a bounded queue ahead of the
  // consumer. May be abandoned at any point.
  class Epoch {
   public:
    explicit Epoch(std::unique_ptr<class EpochState> state);
    Epoch(Epoch&&) noexcept;
    ~Epoch();
    // Null at the end, and after an error; valid until the next call (its
    // tensors for as long as they are held).
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

   private:
    std::unique_ptr<EpochState> state_;
  };

  // Throws UsageError for a batch size below the ranks' number or above that of samples, ShapeError for a sample that
  // is not in the set and for views that the images do not permit, DeviceError for a set
  // that lies on another device than the batches'.
  Loader(const Dataset& data, std::vector<int64_t> samples, LoaderConfig config);

  int64_t samples() const;  // of all ranks
  int64_t batches() const;  // in an epoch
  // From batch `first_batch` on, 0 to batches(), to resume within an epoch.
  Epoch epoch(int64_t number, int64_t first_batch = 0) const;

 private:
  struct Source;
  friend class EpochState;
  std::shared_ptr<const Source> source_;
};

std::vector<int64_t> all_samples(const Dataset& data);  // 0 .. N-1

// Moves the images of both splits to a device other than a CPU if they take a quarter of its free memory at most.
// Loaders then make batches there, and nothing but their order travels.
void keep_on_device(Splits& data, Device device);

}  // namespace ringtape
