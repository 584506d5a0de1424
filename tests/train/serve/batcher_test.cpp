// Requests of many threads are answered together.
#include "train/serve/batcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "core/text.h"

namespace ringtape {
namespace {

using Files = std::span<const std::string_view>;

std::vector<Answer> named(Files files) {
  std::vector<Answer> out;
  for (const std::string_view file : files) out.push_back({.error = concat("to ", file)});
  return out;
}
std::string asked(Batcher& batcher, std::string_view file) { return batcher.ask(std::span(&file, 1))[0].error; }

TEST(Batcher, WhatComesMeanwhileIsAnsweredTogether) {
  std::vector<size_t> sizes;
  std::atomic<bool> begun = false, goes_on = false;
  std::atomic<int> good = 0;
  {
    Batcher batcher(
        [&](Files files) {
          sizes.push_back(files.size());
          begun = true;
          while (!goes_on) std::this_thread::yield();
          return named(files);
        },
        {.size = 4});
    std::vector<std::thread> threads;
    for (int i = 0; i < 10; ++i) {
      threads.emplace_back([&, i] { good += asked(batcher, std::to_string(i)) == "to " + std::to_string(i); });
      while (!begun) std::this_thread::yield();  // the first one alone
    }
    while (batcher.waiting() < 9) std::this_thread::yield();
    goes_on = true;
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(good, 10);
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 4, 4, 1}));
}

TEST(Batcher, FilesOfOneRequestKeepTheirOrder) {
  Batcher batcher(named, {.size = 2});
  const std::string_view files[] = {"a", "b", "c", "d", "e"};
  const std::vector<Answer> answers = batcher.ask(files);
  ASSERT_EQ(answers.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(answers[i].error, concat("to ", files[i]));
  EXPECT_TRUE(batcher.ask({}).empty());
}

TEST(Batcher, WhoWaitsGetsWhatIsThrown) {
  Batcher batcher([](Files files) { return files[0] == "bad" ? throw std::runtime_error("no") : named(files); }, {});
  EXPECT_THROW(asked(batcher, "bad"), std::runtime_error);
  EXPECT_EQ(asked(batcher, "good"), "to good");
  Batcher short_of_answers([](Files) { return std::vector<Answer>(); }, {});
  EXPECT_THROW(asked(short_of_answers, "x"), Error);
}

TEST(Batcher, AFullBatchDoesNotWait) {
  std::atomic<size_t> largest = 0;
  Batcher batcher(
      [&](Files files) {
        largest = std::max<size_t>(largest, files.size());
        return named(files);
      },
      {.size = 2, .wait = std::chrono::hours(1)});
  std::thread other([&] { EXPECT_EQ(asked(batcher, "a"), "to a"); });
  EXPECT_EQ(asked(batcher, "b"), "to b");
  other.join();
  EXPECT_EQ(largest, 2u);
}

}  // namespace
}  // namespace ringtape
