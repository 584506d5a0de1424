#include "train/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "core/random.h"

namespace ringtape {

struct Loader::Source {
  Tensor images, labels;
  std::vector<int64_t> samples;
  LoaderConfig config;
  std::vector<float> normalised;  // channels x 256: what becomes of each byte
  int64_t channels, pixels;       // of one image; pixels = H * W
  int64_t batches_a_chunk;

  void fill(int64_t sample, float* x, int64_t* y, int64_t epoch) const;
};

namespace {

// Workers hand over several small batches at once, so that waking the other side costs little a batch.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kChunksAWorker = 4;

// (byte / 255 - mean) / deviation, in the order and precision of torchvision's ToTensor and Normalize.
std::vector<float> byte_table(const Dataset& data) {
  std::vector<float> table;
  for (size_t c = 0; c < data.mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte)
      table.push_back((float(byte) / 255.0f - data.mean[c]) / data.deviation[c]);
  return table;
}

struct Chunk {
  Tensor x, y;  // `count` batches one after the other
  int64_t first = 0, count = 0;
  std::exception_ptr error;  // what stopped the batch after those
  bool ready = false;
};

}  // namespace

void Loader::Source::fill(int64_t sample, float* x, int64_t* y, int64_t epoch) const {
  const int64_t elements = pixels * channels;
  const uint8_t* from = images.data<uint8_t>() + sample * elements;
  const float* table = normalised.data();
  if (channels == 1)
    for (int64_t i = 0; i < elements; ++i) x[i] = table[from[i]];
  else if (channels == 3)
    for (int64_t i = 0; i < elements; i += 3)
      for (int64_t c = 0; c < 3; ++c) x[i + c] = table[c * 256 + from[i + c]];
  else
    for (int64_t i = 0; i < elements; ++i) x[i] = table[i % channels * 256 + from[i]];
  *y = labels.data<int64_t>()[sample];
  if (config.augment) config.augment(x, epoch, sample);
}

class EpochState {
 public:
  using Source = Loader::Source;

  EpochState(std::shared_ptr<const Source> source, int64_t epoch, int64_t first_batch, int64_t batches)
      : source_(std::move(source)), epoch_(epoch), first_(first_batch), batches_(batches) {
    const LoaderConfig& config = source_->config;
    order_ = source_->samples;
    if (config.shuffle) {
      const auto shuffled =
          permutation(int64_t(order_.size()), config.seed, Stream::shuffle, uint64_t(epoch));
      std::transform(shuffled.begin(), shuffled.end(), order_.begin(),
                     [&](int64_t i) { return source_->samples[size_t(i)]; });
    }
    const int64_t left = std::max<int64_t>(batches_ - first_, 0), size = source_->batches_a_chunk;
    chunks_ = (left + size - 1) / size;
    slots_.resize(size_t(kChunksAWorker * std::max(config.workers, 1)));
    for (int i = 0; i < std::min<int64_t>(config.workers, chunks_); ++i)
      workers_.emplace_back([this](std::stop_token stop) { work(stop); });
  }

  const Batch* next() {
    if (failed_ || (at_ == current_.count && !next_chunk())) return nullptr;
    const int64_t size = source_->config.batch_size, begin = at_ * size;
    batch_.x = rows(current_.x, begin, size);
    batch_.y = rows(current_.y, begin, size);
    batch_.index = current_.first + at_++;
    return &batch_;
  }

 private:
  // False at the end. What it throws ends the epoch.
  bool next_chunk() {
    failed_ = true;
    if (current_.error) std::rethrow_exception(std::exchange(current_.error, nullptr));
    if (served_ < chunks_) {
      current_ = {};
      at_ = 0;
      current_ = workers_.empty() ? fill(served_++, {}) : take();
      move_to_device(current_);
      if (current_.count == 0) std::rethrow_exception(std::exchange(current_.error, nullptr));
    }
    failed_ = false;
    return at_ < current_.count;
  }

  static Tensor rows(const Tensor& x, int64_t begin, int64_t count) {
    const Shape shape = x.shape().with(0, std::min(count, x.dim(0) - begin));
    return x.window(shape, x.strides(), begin * x.strides()[0]);
  }

  void move_to_device(Chunk& chunk) const {
    if (chunk.count == 0 || chunk.x.device() == source_->config.device) return;
    chunk.x = chunk.x.copy_to(source_->config.device);
    chunk.y = chunk.y.copy_to(source_->config.device);
  }

  Chunk fill(int64_t number, std::stop_token stop) const {
    const LoaderConfig& config = source_->config;
    Chunk chunk;
    chunk.ready = true;
    chunk.first = first_ + number * source_->batches_a_chunk;
    try {
      const int64_t last = std::min(chunk.first + source_->batches_a_chunk, batches_);
      const int64_t begin = chunk.first * config.batch_size;
      const int64_t end = std::min(last * config.batch_size, int64_t(order_.size()));
      const Device device = config.device.type == DeviceType::cpu ? config.device : Device{};
      chunk.x = Tensor(source_->images.shape().with(0, end - begin), DType::f32, device);
      chunk.y = Tensor({end - begin}, DType::i64, device);
      auto* x = chunk.x.data<float>();
      auto* y = chunk.y.data<int64_t>();
      const int64_t elements = source_->pixels * source_->channels;
      for (int64_t i = begin; i < end && !stop.stop_requested(); ++i) {
        source_->fill(order_[size_t(i)], x + (i - begin) * elements, y + (i - begin), epoch_);
        if (i + 1 == end || (i + 1 - begin) % config.batch_size == 0) ++chunk.count;
      }
    } catch (...) {
      chunk.error = std::current_exception();
    }
    return chunk;
  }

  void work(std::stop_token stop) {
    const auto depth = int64_t(slots_.size());
    for (;;) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, stop, [&] { return taken_ == chunks_ || taken_ < served_ + depth; });
      if (stop.stop_requested() || taken_ == chunks_) return;
      const int64_t number = taken_++;
      lock.unlock();
      Chunk chunk = fill(number, stop);
      lock.lock();
      slots_[size_t(number % depth)] = std::move(chunk);
      lock.unlock();
      filled_.notify_one();
    }
  }

  Chunk take() {
    std::unique_lock lock(mutex_);
    Chunk& slot = slots_[size_t(served_) % slots_.size()];
    filled_.wait(lock, [&] { return slot.ready; });
    Chunk chunk = std::exchange(slot, {});
    ++served_;
    lock.unlock();
    room_.notify_one();
    return chunk;
  }

  std::shared_ptr<const Source> source_;
  int64_t epoch_, first_, batches_;
  int64_t chunks_ = 0;
  std::vector<int64_t> order_;

  Chunk current_;
  int64_t at_ = 0;  // the next batch of current_
  bool failed_ = false;
  Batch batch_;

  std::mutex mutex_;
  std::condition_variable_any room_, filled_;
  int64_t taken_ = 0, served_ = 0;     // chunks given to workers, and to the consumer, who alone writes that
  std::vector<Chunk> slots_;           // chunk i in slot i % size
  std::vector<std::jthread> workers_;  // last: joined before what they use goes
};

Loader::Loader(const Dataset& data, std::vector<int64_t> samples, LoaderConfig config) {
  RT_CHECK_AS(UsageError, config.batch_size >= 1, "--batch-size ", config.batch_size,
              ": expected at least 1");
  RT_CHECK_AS(UsageError, config.batch_size <= int64_t(samples.size()), "--batch-size ", config.batch_size,
              ": larger than the ", samples.size(), " samples there are of ", data.name);
  RT_CHECK_AS(UsageError, config.workers >= 0, "--workers ", config.workers, ": expected 0 or more");
  const Shape& shape = data.images.shape();
  const int64_t channels = shape[3];
  RT_CHECK(int64_t(data.mean.size()) == channels && data.deviation.size() == data.mean.size(), data.name);
  for (int64_t i : samples)
    RT_CHECK_AS(ShapeError, i >= 0 && i < shape[0], "sample ", i, " of a data set of ", shape[0]);
  const int64_t batch_bytes = config.batch_size * shape.without(0).size() * int64_t(sizeof(float));
  const int64_t chunk =
      config.workers ? std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(batch_bytes, 1), 1, 64) : 1;
  source_ =
      std::make_shared<const Source>(Source{data.images, data.labels, std::move(samples), std::move(config),
                                            byte_table(data), channels, shape[1] * shape[2], chunk});
}

int64_t Loader::samples() const { return int64_t(source_->samples.size()); }

int64_t Loader::batches() const {
  const int64_t size = source_->config.batch_size;
  return (samples() + (source_->config.drop_last ? 0 : size - 1)) / size;
}

Loader::Epoch Loader::epoch(int64_t number, int64_t first_batch) const {
  return Epoch(std::make_unique<EpochState>(source_, number, first_batch, batches()));
}

Loader::Epoch::Epoch(std::unique_ptr<EpochState> state) : state_(std::move(state)) {}
Loader::Epoch::Epoch(Epoch&&) noexcept = default;
Loader::Epoch::~Epoch() = default;
const Batch* Loader::Epoch::next() { return state_->next(); }

std::vector<int64_t> all_samples(const Dataset& data) {
  std::vector<int64_t> out(size_t(data.size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace ringtape
