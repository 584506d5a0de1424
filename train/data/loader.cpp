#include "train/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "core/limits.h"
#include "core/part.h"
#include "core/random.h"
#include "core/runtime.h"
#include "train/data/batches.h"
#include "train/data/files/encoded_images.h"
#include "train/data/files/image_cache.h"
#include "train/data/order.h"

namespace ringtape {

struct Loader::Source {
  BatchMaker maker;
  std::vector<int64_t> samples;
  LoaderConfig config;
  int64_t batches_a_chunk, chunk_bytes;
  std::shared_ptr<const EncodedImages> images;
  std::vector<double> weights;  // of the data set's samples; empty: 1 each
  Tensor labels;                // of the data set
  int classes;
};

Part own_rows(int64_t batch, const LoaderConfig& config) {
  if (config.shares == 0) return part_of(batch, config.ranks, config.rank);
  const auto shares = int(config.shares);
  const Part own = part_of(shares, config.ranks, config.rank);
  return {part_of(batch, shares, int(own.begin)).begin, part_of(batch, shares, int(own.end) - 1).end};
}

// Workers deliver several small batches at once to reduce the cost of waking the other side.
static constexpr int64_t kChunkBytes = 1 << 20;
static constexpr int64_t kChunksAWorker = 4;

class EpochState {
 public:
  using Source = Loader::Source;

  EpochState(std::shared_ptr<const Source> source, int64_t epoch, int64_t first_batch, int64_t batches)
      : source_(std::move(source)), epoch_(epoch), first_(first_batch), batches_(batches) {
    const LoaderConfig& config = source_->config;
    const std::vector<int64_t>& samples = source_->samples;
    order_ = from_host(order_of(epoch), {int64_t(samples.size())});
    samples_ = order_.size();
    if (!source_->weights.empty()) scales_ = scales_of(order_);
    if (config.ranks > 1 || others() > 0) order_ = own_part(order_);
    const bool resident = source_->maker.resident();
    if (resident) order_ = order_.copy_to(config.device);
    const int64_t left = std::max<int64_t>(batches_ - first_, 0), size = source_->batches_a_chunk;
    chunks_ = (left + size - 1) / size;
    inbox_ = source_->maker.inbox(size * made_size());
    slots_.resize(size_t(std::clamp<int64_t>(config.ahead / std::max<int64_t>(source_->chunk_bytes, 1), 2,
                                             kChunksAWorker * std::max(config.workers, 1))));
    for (int i = 0; i < std::min<int64_t>(resident ? 0 : config.workers, chunks_); ++i)
      workers_.push_back(start_thread<std::jthread>("a loader's worker", [this](std::stop_token stop) { work(stop); }));
  }

  const Batch* next() {
    if (failed_ || (at_ == current_.count && !next_chunk())) return nullptr;
    const int64_t size = own_size(), begin = at_ * size;
    batch_.x = current_.x.defined() ? rows(current_.x, begin, size) : Tensor();
    batch_.views.clear();
    for (const Tensor& view : current_.views) batch_.views.push_back(rows(view, begin, size));
    batch_.index = current_.first + at_;
    const Tensor made = rows(current_.y, at_++ * made_size(), made_size());
    const int64_t others = made.size() > 0 ? this->others() : 0;
    batch_.y = rows(made, others, size);
    batch_.other = this->others() > 0 ? rows(made, 0, made.size() - others) : Tensor();
    batch_.share = source_->maker.mixture(epoch_, batch_.index).label_share;
    if (scales_.defined()) batch_.scale = scales_.window({}, {}, batch_.index);
    batch_.global_size = std::min(source_->config.batch_size, samples_ - batch_.index * source_->config.batch_size);
    return &batch_;
  }

  double images_per_s() const {
    const double seconds = 1e-9 * double(busy_), all = double(std::max(source_->config.workers, 1));
    return busy_ > 0 ? double(made_) / seconds * all : 0;
  }

 private:
  std::vector<int64_t> order_of(int64_t epoch) const {
    const auto& [seed, samples] = std::tie(source_->config.seed, source_->samples);
    if (source_->config.balanced) return balanced(samples, source_->labels, source_->classes, seed, epoch);
    if (!source_->config.shuffle) return samples;
    return shuffled(samples, seed, epoch, source_->config.shuffle_buffer, source_->images.get());
  }
  int64_t own_size() const {  // size of this rank's batches, except the last one
    const LoaderConfig& config = source_->config;
    return own_rows(config.batch_size, config).size();
  }

  // Images that are made for a batch only to be mixed with its first one.
  int64_t others() const { return source_->maker.mixes() ? 1 : 0; }
  int64_t made_size() const { return own_size() + others(); }

  // This rank's samples, batch by batch, each after the image that its first one is mixed with.
  Tensor own_part(const Tensor& order) const {
    const LoaderConfig& config = source_->config;
    const auto all = order.span<int64_t>();
    std::vector<int64_t> own;
    for (int64_t begin = 0; begin < order.size(); begin += config.batch_size) {
      const int64_t batch = std::min(config.batch_size, order.size() - begin);
      const Part part = own_rows(batch, config);
      if (others() > 0 && part.size() > 0) own.push_back(all[size_t(begin + (part.begin + batch - 1) % batch)]);
      own.insert(own.end(), all.begin() + begin + part.begin, all.begin() + begin + part.end);
    }
    return from_host(own, {int64_t(own.size())});
  }

  // Labels::scale of each batch. Images that are mixed with others have those of the same batch, in another order.
  Tensor scales_of(const Tensor& order) const {
    const int64_t size = source_->config.batch_size;
    const auto all = order.span<int64_t>();
    std::vector<double> out;
    for (int64_t begin = 0; begin < order.size(); begin += size) {
      const int64_t end = std::min(begin + size, order.size());
      double sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += source_->weights[size_t(sample_of(all[size_t(i)]))];
      out.push_back(sum > 0 ? double(end - begin) / sum : 0);  // 0: nothing in this batch counts
    }
    return from_host(out, {int64_t(out.size())}, source_->config.device);
  }

  // Returns false at the end. An exception ends the epoch.
  bool next_chunk() {
    failed_ = true;
    if (served_ < chunks_) {
      current_ = {};
      at_ = 0;
      current_ = workers_.empty() ? gathered(served_++) : take();
      if (current_.error) std::rethrow_exception(std::exchange(current_.error, nullptr));
      source_->maker.finish(current_, samples_of(current_), epoch_, inbox_.get());
    }
    failed_ = false;
    return at_ < current_.count;
  }

  static Tensor rows(const Tensor& x, int64_t begin, int64_t count) {
    const Shape shape = x.shape().with(0, std::min(count, x.dim(0) - begin));
    return x.window(shape, x.strides(), begin * x.strides()[0]);
  }

  Tensor samples_of(const Chunk& chunk) const {
    const int64_t size = made_size(), begin = chunk.first * size;
    return rows(order_, begin, std::min((chunk.first + chunk.count) * size, order_.size()) - begin);
  }

  Chunk gathered(int64_t number) {
    Chunk chunk;
    chunk.ready = true;
    chunk.first = first_ + number * source_->batches_a_chunk;
    chunk.count = std::min(source_->batches_a_chunk, batches_ - chunk.first);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const Tensor samples = samples_of(chunk);
      source_->maker.gather(chunk, samples, epoch_);
      made_ += samples.size();
    } catch (...) {
      chunk.error = std::current_exception();
    }
    busy_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
    return chunk;
  }

  void work(std::stop_token stop) {
    set_threads(1);
    const auto depth = int64_t(slots_.size());
    for (;;) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, stop, [&] { return taken_ == chunks_ || taken_ < served_ + depth; });
      if (stop.stop_requested() || taken_ == chunks_) return;
      const int64_t number = taken_++;
      lock.unlock();
      Chunk chunk = gathered(number);
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
  int64_t samples_ = 0;           // over all ranks in this epoch
  Tensor order_;                  // i64: the samples of the epoch; on the device of a resident set
  Tensor scales_;                 // f64: of each batch
  std::shared_ptr<Inbox> inbox_;  // where chunks that are sent arrive

  Chunk current_;
  int64_t at_ = 0;  // the next batch of current_
  bool failed_ = false;
  Batch batch_;

  std::atomic<int64_t> made_ = 0, busy_ = 0;  // images, and the nanoseconds of all workers for them

  std::mutex mutex_;
  std::condition_variable_any room_, filled_;
  int64_t taken_ = 0, served_ = 0;     // chunks given to workers; to the consumer, which alone writes served_
  std::vector<Chunk> slots_;           // chunk i in slot i % size
  std::vector<std::jthread> workers_;  // last member: joined before the members that they use are destroyed
};

static std::vector<double> weights_of(const Dataset& data, const LoaderConfig& config) {
  std::vector<double> out;
  if (config.class_weights.empty()) return out;
  const Tensor labels = data.labels.copy_to(Device{});
  const auto classes = int64_t(config.class_weights.size());
  for (const int64_t label : labels.span<int64_t>()) {
    RT_CHECK_AS(UsageError, label >= 0 && label < classes, data.name, ": a label ", label, ", but ", classes,
                " class weights");
    out.push_back(config.class_weights[size_t(label)]);
  }
  return out;
}

Loader::Loader(const Dataset& data, std::vector<int64_t> samples, LoaderConfig config) {
  check_dataset(data);
  RT_CHECK_AS(UsageError, config.batch_size >= 1, "--batch-size ", config.batch_size, ": expected at least 1");
  RT_CHECK_AS(UsageError, config.batch_size <= int64_t(samples.size()), "--batch-size ", config.batch_size,
              ": larger than the ", samples.size(), " samples of ", data.name, "; give a smaller one");
  RT_CHECK(config.rank >= 0 && config.rank < config.ranks, "rank ", config.rank, " of ", config.ranks);
  RT_CHECK_AS(UsageError, config.batch_size >= config.ranks, "--batch-size ", config.batch_size,
              ": fewer samples than the ", config.ranks, " ranks");
  RT_CHECK_AS(UsageError, config.workers >= 0, "--workers ", config.workers, ": expected 0 or more");
  for (int64_t i : samples)
    RT_CHECK_AS(ShapeError, i >= 0 && i < data.size(), "sample ", i, " of a data set of ", data.size());
  BatchMaker maker(data, config);
  const int64_t batch_bytes = own_rows(config.batch_size, config).size() * maker.waiting_bytes();
  const int64_t chunk =
      config.workers ? std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(batch_bytes, 1), 1, 64) : 1;
  source_ =
      std::make_shared<const Source>(Source{std::move(maker), std::move(samples), config, chunk, chunk * batch_bytes,
                                            data.encoded, weights_of(data, config), data.labels, data.classes});
}

int64_t Loader::samples() const { return int64_t(source_->samples.size()); }

int64_t Loader::batches() const {
  const int64_t size = source_->config.batch_size;
  return (samples() + (source_->config.drop_last ? 0 : size - 1)) / size;
}

Loader::Epoch Loader::epoch(int64_t number, int64_t first_batch) const {
  RT_CHECK_AS(UsageError, number >= 0, "epoch ", number, ": expected 0 or more");
  RT_CHECK_AS(UsageError, first_batch >= 0 && first_batch <= batches(), "batch ", first_batch, " of ", batches());
  return Epoch(std::make_unique<EpochState>(source_, number, first_batch, batches()));
}

Loader::Epoch::Epoch(std::unique_ptr<EpochState> state) : state_(std::move(state)) {}
Loader::Epoch::Epoch(Epoch&&) noexcept = default;
Loader::Epoch::~Epoch() = default;
const Batch* Loader::Epoch::next() { return state_->next(); }
double Loader::Epoch::images_per_s() const { return state_->images_per_s(); }

std::vector<int64_t> all_samples(const Dataset& data) {
  std::vector<int64_t> out(size_t(data.size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void keep_on_device(Splits& data, Device device) {
  int64_t bytes = 0;
  data.each([&](const Dataset& set) { bytes += set.images.size(); });
  if (device.type == DeviceType::cpu || data.train.is_encoded() || 4 * bytes > runtime(device).free_bytes(device.index))
    return;
  data.each([&](Dataset& set) {
    for (int64_t i = 0; set.cache && i < set.size(); ++i) set.cache->check(i);
    set.images = set.images.copy_to(device);
    if (set.cache) set.cache->check();
    set.labels = set.labels.copy_to(device);
  });
}

}  // namespace ringtape
