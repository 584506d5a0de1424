// Features of a data set, on one rank and on several, and their evaluation by nearest neighbours.
#include "train/evaluation/features.h"

#include <cmath>
#include <set>

#include "autograd/create.h"
#include "comm/transport/transports.h"
#include "nn/nn.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/data/loader.h"
#include "train/data/sets/shapes.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/linear_probe.h"
#include "train/evaluation/snapshot_parts.h"

namespace ringtape {
namespace {

using test::values;

Tensor rows(int64_t count, double (*f)(double i, double j)) {
  Tensor x({count, 3});
  for (int64_t i = 0; i < count * 3; ++i) x.data<float>()[i] = float(f(double(i / 3), double(i % 3)));
  return x;
}
Tensor alternating(int64_t count) {
  Tensor labels({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) labels.data<int64_t>()[i] = i % 2;
  return labels;
}
const auto kQueries = [](double i, double j) { return std::sin(1 + 3 * i + j); };
const auto kBank = [](double i, double j) { return std::cos(1 + 3 * i + j) + 0.1 * i; };

// Expected values computed in double with NumPy.
TEST(Knn, ScoresAreSumsOfExponentials) {
  const Tensor scores = knn_scores(rows(4, kQueries), rows(4, kBank), alternating(4), 2, {.k = 3, .temperature = 0.1});
  const Tensor expected = from_host(std::vector<double>{158.01386653, 2.14091906, 5.87570157, 0.49750236, 13.30818275,
                                                        30.51555472, 75.3789199, 0.0219772492},
                                    {4, 2});
  test::expect_close(scores, expected, 1e-5, 0, "votes");
}

TEST(Knn, ATinyTemperatureKeepsTheirRatios) {
  const Tensor q = from_host(std::vector<float>{1, 0}, {1, 2}),
               bank = from_host(std::vector<float>{2, 0, 3, 0, 5, 0, 0, 1}, {4, 2});
  const Tensor labels = from_host(std::vector<int64_t>{0, 1, 1, 2}, {4});
  const std::vector<double> votes = values(knn_scores(q, bank, labels, 3, {.k = 4, .temperature = 1e-4}));
  EXPECT_TRUE(std::isfinite(votes[1]));
  EXPECT_GT(votes[0], 0);
  EXPECT_DOUBLE_EQ(votes[1] / votes[0], 2);
  EXPECT_EQ(votes[2], 0);
}

TEST(Knn, SaysWhatIsWrong) {
  const Tensor q = ones({1, 2}), bank = ones({3, 2}), labels = from_host(std::vector<int64_t>{0, 1, 5}, {3});
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { knn_scores(q, bank, labels, 6, {.k = 4}); }),
                  "kNN: 4 neighbours of a bank of 3 samples");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { knn_scores(q, bank, labels, 6, {.k = 0}); }), "choose");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { knn_scores(q, bank, labels, 6, {.k = 1, .temperature = 0}); }),
                  "above 0");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { knn_scores(q, bank, labels, 5, {.k = 1}); }), "label 5");
}

// Two classes that differ only in one feature with very small values; the other feature is constant.
TEST(LinearProbe, LearnsWhatALineCanTell) {
  Features train{zeros({60, 3}), alternating(60)}, queries{zeros({20, 3}), alternating(20)};
  for (const Features* f : {&train, &queries})
    for (int64_t i = 0; i < f->size(); ++i) {
      f->x.data<float>()[3 * i] = 1e-3f * float(i % 2 ? 1 : -1) + 1e-5f * float(i % 7);
      f->x.data<float>()[3 * i + 1] = float(i % 5);
      f->x.data<float>()[3 * i + 2] = 40;
    }
  const LinearProbe probe{.epochs = 10, .batch_size = 16};
  const Tally tally = linear_probe(train, queries, 2, probe);
  EXPECT_EQ(tally.samples(), 20);
  EXPECT_EQ(tally.top1(), 1);
  EXPECT_LT(tally.loss(), 0.3);
  EXPECT_EQ(linear_probe(train, queries, 2, probe).loss(), tally.loss());
  EXPECT_NE(linear_probe(train, queries, 2, {.epochs = 10, .batch_size = 16, .seed = 2}).loss(), tally.loss());
  EXPECT_MENTIONS(test::message_of<UsageError>([&] {
                    linear_probe(train, {zeros({0, 3}), alternating(0)}, 2, probe);
                  }),
                  "0 test samples");
}

// Records the mode in which it was called.
struct Flattened : nn::Module {
  Tensor forward(const Tensor& x) override {
    trained |= training();
    return flatten(x);
  }
  std::string str() const override { return "Flattened"; }
  bool trained = false;
};

TEST(Features, AreThoseOfTheSamplesInOrder) {
  const Splits data = load_shapes({.settings = ShapesOptions{1100, 10}, .seed = 3});
  Flattened model;
  std::vector<int64_t> samples = all_samples(data.train);
  std::reverse(samples.begin(), samples.end());
  const Features features = embed(
      model, [&](const Tensor& x) { return model(x); }, data.train, samples);
  EXPECT_FALSE(model.trained);
  EXPECT_TRUE(model.training());
  ASSERT_EQ(features.x.shape(), (Shape{1100, 32 * 32 * 3}));
  for (int64_t i : {0, 499, 500, 1099}) {
    EXPECT_EQ(features.labels.data<int64_t>()[i], data.train.labels.data<int64_t>()[1099 - i]);
    for (int64_t p : {0, 100, 3071}) {
      const double pixel = data.train.images.data<uint8_t>()[(1099 - i) * 3072 + p] / 255.0;
      const size_t channel = size_t(p % 3);
      EXPECT_NEAR(features.x.data<float>()[i * 3072 + p],
                  (pixel - double(data.train.mean[channel])) / double(data.train.deviation[channel]), 1e-5);
    }
  }
  EXPECT_MENTIONS(
      test::message_of<UsageError>([&] { embed(model, [](const Tensor& x) { return x; }, data.train, {}); }),
      "no samples");
  EXPECT_MENTIONS(
      test::message_of<ShapeError>([&] { embed(model, [](const Tensor& x) { return x; }, data.train, {1}); }),
      "(1, F)");
}

thread_local bool to_end;  // this rank

TEST(Features, AllRanksLearnThatOneIsToEnd) {
  const Splits data = load_shapes({.settings = ShapesOptions{600, 10}, .seed = 3});
  const auto f = [](const Tensor& x) { return mean(reshape(x, {x.dim(0), 64, 48}), {1}); };
  for (const std::set<int>& ends : {std::set<int>{1}, {0, 2}})
    EXPECT_EQ("", comm::test::run_threads(3, 1, comm::Seconds(60), [&](comm::Context context) {
                comm::ProcessGroup group(comm::threads_transport(std::move(context)));
                Flattened own;
                to_end = ends.contains(group.rank());
                const EmbedOptions options{.interrupted = [] { return to_end; }};
                try {
                  (void)embed(own, f, data.train, all_samples(data.train), options, group);
                  ADD_FAILURE() << "rank " << group.rank() << " goes on";
                } catch (const SharedPasses::Interrupted& pass) {
                  EXPECT_EQ(pass.ranks, int64_t(ends.size()));
                }
                to_end = false;
                EXPECT_EQ(embed(own, f, data.train, all_samples(data.train), options, group).size(), 600);
              }));
}

TEST(Features, OfSeveralRanksAreThoseOfOne) {
  const Splits data = load_shapes({.settings = ShapesOptions{200, 41}, .seed = 3});
  const auto f = [](const Tensor& x) { return mean(reshape(x, {x.dim(0), 64, 48}), {1}); };
  Flattened model;
  const std::vector<int64_t> bank = all_samples(data.train), queries = all_samples(data.test);
  const Knn knn{.k = 20};
  const Features alone = embed(model, f, data.train, bank);
  const Tally expected = knn_test(model, f, data.train, bank, data.test, queries, knn);
  EXPECT_EQ(expected.samples(), 41);
  EXPECT_GT(expected.top5(), expected.top1());
  for (int ranks : {1, 3})
    EXPECT_EQ("", comm::test::run_threads(ranks, 1, comm::Seconds(60), [&](comm::Context context) {
                comm::ProcessGroup group(comm::threads_transport(std::move(context)));
                Flattened own;
                const Features all = embed(own, f, data.train, bank, {}, group);
                EXPECT_TRUE(test::same_bytes(all.x, alone.x));
                EXPECT_TRUE(test::same_bytes(all.labels, alone.labels));
                EXPECT_EQ(embed(own, f, data.train, {7}, {}, group).labels.item(),
                          alone.labels.span<int64_t>()[7]);  // fewer samples than ranks
                const Tally found = knn_test(own, f, data.train, bank, data.test, queries, knn, {}, group);
                EXPECT_EQ(found.samples(), expected.samples());
                EXPECT_EQ(found.top1(), expected.top1());
                EXPECT_EQ(found.top5(), expected.top5());
              }));
}

// The test images of a folder lie in the order of the classes: what is shown of some must not be of the first alone.
TEST(Snapshots, ShowImagesOfAllClasses) {
  constexpr int64_t kClasses = 10, kEach = 60;
  Dataset set;
  set.name = "sorted", set.classes = kClasses;
  set.images = zeros({kClasses * kEach, 2, 2, 1}, DType::u8);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kClasses * kEach; ++i) labels.push_back(i / kEach);
  set.labels = from_host(labels, {kClasses * kEach});
  const std::vector<int64_t> all = all_samples(set);
  const Features features{randn({kClasses * kEach, 3}), set.labels};
  Snapshot shown;
  add_features(shown, set, all, features, set, all, features);
  const auto classes_of = [](const Tensor& x) {
    const auto values = x.span<int64_t>();
    return std::set<int64_t>(values.begin(), values.end()).size();
  };
  EXPECT_EQ(shown.map.dim(0), 500);
  EXPECT_EQ(classes_of(shown.map_labels), size_t(kClasses));
  Tensor logits = zeros({kClasses * kEach, kClasses});
  for (int64_t i = 0; i < kClasses * kEach; ++i) logits.data<float>()[i * kClasses + labels[size_t(i)]] = 5;
  add_predictions(shown, set, all, {logits}, comm::alone());
  EXPECT_EQ(classes_of(shown.predicted), size_t(kClasses));  // 12 that are right
}

}  // namespace
}  // namespace ringtape
