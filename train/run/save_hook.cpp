#include "train/run/save_hook.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "core/check.h"
#include "core/log.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/look.h"
#include "train/io/process.h"
#include "train/io/safetensors_header.h"
#include "train/run/run_dir.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr double kPauses[] = {1, 4, 16};  // seconds before it is called again; at most the time limit

// Differs if the content does: of a checkpoint, state.json has the checksums of the other files; files of weights have
// their own in their headers.
std::string mark_of(const std::string& path) {
  Crc32 crc;
  if (const std::string state = path + "/state.json"; is_there(state)) return crc.add(read_file(state)).str();
  const std::string folder = path + "/";
  for (const std::string& file : {path, folder + exported_name(false), folder + exported_name(true)})
    if (file.ends_with(".safetensors") && is_there(file))
      for (const auto& [key, value] : read_safetensors_header(file).metadata)
        crc.add(key).add("=").add(value).add("\n");
  return crc.str();
}

// From any thread; a log that cannot be written is noticed by the training.
void warn_of_hook(const std::string& text) {
  try {
    log_warn("--on-save: ", text);
  } catch (const std::exception&) {
  }
}

std::vector<std::string> with_path(std::vector<std::string> words, const std::string& path) {
  bool named = false;
  for (std::string& word : words)
    for (size_t at = 0; (at = word.find("{}", at)) != std::string::npos; at += path.size())
      word.replace(at, 2, path), named = true;
  if (!named) words.push_back(path);
  return words;
}

std::string within(const std::string& path, const std::string& run) {
  return fs::path(path).lexically_relative(run).string();
}

}  // namespace

void SaveHook::check(const std::string& command) {
  const std::vector<std::string> words = split_words(command, "--on-save");
  RT_CHECK_AS(UsageError, words.empty() || is_program(words[0]), "--on-save: there is no program '", words[0],
              "' that can be started (without a shell; a script begins with a line such as #!/bin/sh)");
}

SaveHook::SaveHook(const RunDir& run, const std::string& command, double time_limit)
    : run_(run.path()), record_path_(run.file(kDeliveredFile)), words_(split_words(command, "--on-save")),
      time_limit_(time_limit) {
  if (!used()) return;
  check(command);
  if (is_there(record_path_)) {
    const std::string text = read_file(record_path_);
    record_bytes_ = int64_t(text.rfind('\n') + 1);  // without a line that was cut off
    std::istringstream lines(text.substr(0, size_t(record_bytes_)));
    for (std::string line; std::getline(lines, line);)
      if (const size_t blank = line.find(' '); blank != std::string::npos)
        delivered_[line.substr(blank + 1)] = line.substr(0, blank);
  }
  thread_ = std::thread([this] { work(); });
}

SaveHook::~SaveHook() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SaveHook::saved(const std::string& kind, const std::string& path) {
  if (!used()) return;
  Saved next{kind, path, ""};
  try {
    next.mark = mark_of(path);
  } catch (const Error& e) {
    warn_of_hook(e.what());
    const std::lock_guard lock(mutex_);
    failed_.push_back(next);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (delivered(path, next.mark)) return;
  waiting_.push_back(next);
  changed_.notify_all();
}

bool SaveHook::delivered(const std::string& path, const std::string& mark) const {
  const auto found = delivered_.find(within(path, run_));
  return found != delivered_.end() && found->second == mark;
}

bool SaveHook::has_had(const std::string& path) const {
  const std::string mark = mark_of(path);
  const std::lock_guard lock(mutex_);
  return delivered(path, mark);
}

bool SaveHook::needs(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const Saved& each) { return each.path == path; };
  return std::any_of(waiting_.begin(), waiting_.end(), is_it) || std::any_of(failed_.begin(), failed_.end(), is_it);
}

bool SaveHook::waits() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty() || !failed_.empty();
}

void SaveHook::earlier(const Checkpoints& checkpoints, int64_t until, const Course& course) {
  for (const int64_t step : checkpoints.steps_until(until)) {
    const std::string path = checkpoints.path_of(step);
    try {
      if (!has_had(path)) (void)check_checkpoint(path, step, course);
      checkpoint(path);
    } catch (const Error& e) {
      warn_of_hook(concat("not called for ", e.what()));
    }
  }
}

void SaveHook::finish(const std::function<bool()>& enough, const std::function<void(const std::string&)>& say) {
  constexpr std::chrono::milliseconds kLook(100);
  std::unique_lock lock(mutex_);
  for (const Saved& each : failed_) waiting_.push_back(each);
  failed_.clear();
  changed_.notify_all();
  while (!changed_.wait_for(lock, kLook, [&] { return waiting_.empty(); }) && !enough()) {
  }
  std::string left;
  for (const auto* list : {&failed_, &waiting_})
    for (const Saved& each : *list) left += concat(left.empty() ? "" : ", ", each.path);
  lock.unlock();
  if (!left.empty()) say(concat("warning: --on-save has not had ", left, "; --resume calls it again"));
}

bool SaveHook::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return ends_.load(); });
}

bool SaveHook::call(const Saved& saved) {
  const std::vector<std::string> command = with_path(words_, saved.path);
  std::string why;
  try {
    const Finished done = run_program(
        command, {.quiet = true,
                  .time_limit = time_limit_,
                  .cancelled = &ends_,
                  .environment = {"RINGTAPE_SAVED=" + saved.kind, "RINGTAPE_RUN=" + run_, "RINGTAPE_ON_SAVE="}});
    if (done.in_time && done.code == 0) return true;
    why = done.in_time ? concat("ended with ", done.code) : concat("took more than ", time_limit_, " s");
    if (!done.error.empty()) why += ": " + done.error.substr(done.error.rfind('\n') + 1);
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!ends_) warn_of_hook(concat("for ", saved.path, ": ", why));
  return false;
}

void SaveHook::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (ends_) return;
    const Saved next = waiting_.front();
    lock.unlock();
    bool done = call(next);
    for (const double seconds : kPauses) {
      if (done || !pause(std::min(seconds, time_limit_))) break;
      done = call(next);
    }
    lock.lock();
    if (ends_ && !done) return;
    const std::string path = within(next.path, run_);
    if (done) {
      try {
        if (!record_) record_ = std::make_unique<LineFile>(record_path_, record_bytes_);
        record_->write(concat(next.mark, " ", path));
        record_->sync();
        delivered_[path] = next.mark;
      } catch (const Error& e) {
        warn_of_hook(concat(e.what(), "; a resumed run calls it again for ", next.path));
      }
    } else {
      failed_.push_back(next);
    }
    waiting_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace ringtape
