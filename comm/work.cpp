#include "comm/work.h"

#include <exception>

#include "core/limits.h"
#include "core/recording.h"

namespace ringtape::comm {

constexpr auto kGrace = std::chrono::seconds(1);

Worker::~Worker() {
  std::unique_lock lock(mutex_);
  const bool leaving = std::uncaught_exceptions() > 0;
  if (leaving)
    for (; !queue_.empty() && queue_.back()->operation.sequence > started_; queue_.pop_back()) {
      queue_.back()->error =
          concat(queue_.back()->operation, " was not started: its group was destroyed by an exception");
      queue_.back()->done.store(true, std::memory_order_release);
    }
  // The other ranks may wait for this rank elsewhere, so it does not delay its exception for long.
  if (leaving && !changed_.wait_for(lock, kGrace, [this] { return !busy_ && queue_.empty(); }))
    transport_.context().failure->raise(
        concat("rank ", transport_.rank(), " failed with an exception, and the other ranks did not finish ", current_));
  while (busy_ || !queue_.empty()) {
    if (busy_) changed_.wait(lock);
    else execute_next(lock);
  }
  for (const auto& work : in_flight_) work->ended->wait();
  stopped_ = true;
  lock.unlock();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::add(std::shared_ptr<Work::State> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
}

void Worker::start(const Work::State& work) {
  {
    const std::lock_guard lock(mutex_);
    if (work.operation.sequence <= started_) return;
    started_ = work.operation.sequence;
    if (!thread_.joinable()) thread_ = start_thread("collectives", [this] { loop(); });
  }
  changed_.notify_all();
}

void Worker::finish(const Work::State& work) {
  if (work.done.load(std::memory_order_acquire)) return;
  std::unique_lock lock(mutex_);
  while (!work.done.load(std::memory_order_acquire)) {
    if (busy_) changed_.wait(lock);
    else execute_next(lock);
  }
}

// Without the lock while it executes.
void Worker::execute_next(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Work::State> work = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  current_ = work->operation;
  lock.unlock();
  execute(*work);
  lock.lock();
  busy_ = false;
  // Before this one is among them: it is rarely over, and to ask is a call of the driver.
  while (!in_flight_.empty() && (in_flight_.front()->followed.load() || in_flight_.front()->ended->passed()))
    in_flight_.pop_front();
  if (work->ended) in_flight_.push_back(work);
  changed_.notify_all();
}

void Worker::execute(Work::State& work) noexcept {
  Failure& failure = *transport_.context().failure;
  work.span.begin = Clock::now();
  try {
    failure.check();
    if (work.asked) transport_.follow(*work.asked);
    transport_.begin(work.operation, Deadline(transport_.context().timeout),
                     work.cuts ? *work.cuts : std::span<const int64_t>{});
    work.run(transport_, work.from, work.to);
    work.ended = transport_.reached();
    transport_.end();
  } catch (const std::exception& e) {
    failure.raise(concat("rank ", transport_.rank(), " in ", work.operation, ": ", e.what()));
    work.error = failure.cause();
  }
  work.span.end = Clock::now();
  if (!work.ended) work.x = work.y = Tensor();
  work.done.store(true, std::memory_order_release);
}

void Worker::loop() {
  set_threads(1);  // runs in addition to the kernels of the rank's own threads
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (busy_ || queue_.empty() || queue_.front()->operation.sequence > started_) changed_.wait(lock);
    else execute_next(lock);
  }
}

Work Work::State::recorded(std::function<Work()> request) {
  auto state = std::make_shared<State>();
  state->latest = std::make_shared<Work>();
  at_each_launch([latest = state->latest, request = std::move(request)] { *latest = request(); });
  return Work(std::move(state));
}

void Work::wait() const {
  if (!state_) return;
  if (const auto& latest = state_->latest) return at_each_launch([latest] { latest->wait(); });
  RT_CHECK_AS(DeviceError, !Recording::current(), state_->operation, " began before a recording, which cannot wait");
  if (!done()) state_->worker->finish(*state_);
  if (!state_->error.empty()) throw CommError(state_->error);
  if (!state_->ended) return;
  state_->ended->wait();
  state_->followed.store(true);
}

Work Work::start() const {
  if (!state_) return *this;
  if (const auto& latest = state_->latest) at_each_launch([latest] { latest->start(); });
  else if (!done()) state_->worker->start(*state_);
  return *this;
}

Work::Span Work::span() const {
  if (!state_) return {};
  if (state_->latest) return state_->latest->span();
  return done() ? state_->span : Span();
}

bool Work::done() const {
  if (!state_) return true;
  return state_->latest ? state_->latest->done() : state_->done.load(std::memory_order_acquire);
}

}  // namespace ringtape::comm
