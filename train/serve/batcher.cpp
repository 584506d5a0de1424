#include "train/serve/batcher.h"

#include <algorithm>
#include <exception>

#include "core/check.h"
#include "core/device.h"

namespace ringtape {

// A file whose ask() waits.
struct Batcher::Waiting {
  std::string_view file;
  Answer answer = {};
  std::exception_ptr thrown = {};
  bool done = false;
};

Batcher::Batcher(Answering answer, const BatchOptions& options)
    : answer_(std::move(answer)), options_(options), thread_([this, own = threads()] {
        set_threads(own);
        compute();
      }) {}

Batcher::~Batcher() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  more_.notify_one();
  thread_.join();
}

std::vector<Answer> Batcher::ask(std::span<const std::string_view> files) {
  std::vector<Waiting> own(files.size());
  for (size_t i = 0; i < files.size(); ++i) own[i].file = files[i];
  std::unique_lock lock(mutex_);
  for (Waiting& each : own) waiting_.push_back(&each);
  more_.notify_one();
  done_.wait(lock, [&] { return std::ranges::all_of(own, &Waiting::done); });
  std::vector<Answer> out;
  for (Waiting& each : own) {
    if (each.thrown) std::rethrow_exception(each.thrown);
    out.push_back(std::move(each.answer));
  }
  return out;
}

size_t Batcher::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::vector<Batcher::Waiting*> Batcher::next_batch() {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
  if (options_.wait.count() > 0)
    more_.wait_for(lock, options_.wait, [&] { return ends_ || waiting_.size() >= options_.size; });
  std::vector<Waiting*> out;
  for (; !waiting_.empty() && out.size() < options_.size; waiting_.pop_front()) out.push_back(waiting_.front());
  return out;
}

void Batcher::compute() {
  for (std::vector<Waiting*> batch; !(batch = next_batch()).empty();) {
    std::vector<std::string_view> files;
    for (const Waiting* each : batch) files.push_back(each->file);
    std::vector<Answer> answers(batch.size());
    std::exception_ptr thrown;
    try {
      answers = answer_(files);
      RT_CHECK(answers.size() == files.size(), "expected ", files.size(), " answers, got ", answers.size());
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!thrown) batch[i]->answer = std::move(answers[i]);
      batch[i]->thrown = thrown, batch[i]->done = true;
    }
    done_.notify_all();
  }
}

}  // namespace ringtape
