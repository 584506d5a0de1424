// Transforms of images that a program brings: the same bytes for any number of workers and ranks.
#include "train/data/transform.h"

#include <gtest/gtest.h>

#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/transforms.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using test::message_of;
using test::Stamp;
using test::StampOptions;

const RegisterTransform stamp({.name = "stamp",
                               .summary = "marks a pixel",
                               .settings = StampOptions{},
                               .make = make_transform<Stamp, StampOptions>});
struct Failing : Transform {
  void apply(const TransformedImage& image) const override {
    RT_CHECK(image.sample != 17, "failing: sample ", image.sample);
  }
};
const RegisterTransform failing({.name = "failing",
                                 .summary = "fails",
                                 .make = [](const Settings&) -> std::unique_ptr<Transform> {
                                   return std::make_unique<Failing>();
                                 }});

TEST(Transforms, BytesDependOnNeitherWorkersNorRanks) {
  for (const bool views : {false, true}) {
    const std::string one = test::stamped_batches({}, views, 1, 0);
    EXPECT_NE(one, test::stamped_batches({}, views, 1, 0, 0)) << "it changes nothing";
    for (const int ranks : {1, 2, 3})
      for (const int workers : {0, 1, 3}) EXPECT_TRUE(one == test::stamped_batches({}, views, ranks, workers));
    EXPECT_TRUE(one == test::stamped_batches({DeviceType::cpu, 1}, views, 1, 2));
  }
}

TEST(Transforms, EachViewHasItsOwn) {
  const Dataset data = test::shapes_for_transforms();
  LoaderConfig config{.batch_size = 8, .transforms = {std::make_shared<Stamp>(StampOptions{})}};
  const ViewAugmentation plain{.crop_low = 1, .crop_high = 1, .flip = 0, .jitter = 0, .gray = 0, .blur = 0};
  config.views = {plain, plain};
  for (const Batch& batch : Loader(data, all_samples(data), config).epoch(0))
    EXPECT_NE(test::values(batch.views[0]), test::values(batch.views[1]));
}

TrainOptions training(test::NamedValues more) {
  TrainOptions o;
  test::set(o, {{"data", "shapes"},
                {"train-size", "64"},
                {"test-size", "16"},
                {"hidden", "4"},
                {"batch-size", "16"},
                {"epochs", "1"},
                {"device", "cpu"}});
  test::set(o, more);
  return o;
}

double loss_of(test::NamedValues more) {
  RunSetup setup(resolve(training(more)));
  double loss = 0;
  make_trainer(setup).fit([&](const Metrics& m) {
    if (m.split == "train") loss = *m.loss;
  });
  return loss;
}

TEST(Transforms, AreChosenByName) {
  const double plain = loss_of({}), stamped = loss_of({{"transform", "stamp"}, {"stamp-size", "9"}});
  EXPECT_NE(plain, stamped);
  EXPECT_EQ(stamped, loss_of({{"transform", "stamp"}, {"stamp-size", "9"}, {"workers", "0"}}));
  EXPECT_MENTIONS(config_text(training({{"transform", "stamp"}, {"stamp-size", "9"}})), "stamp-size = 9");
  EXPECT_MENTIONS(message_of<UsageError>([] {
                    loss_of({{"transform", "stmap"}});
                  }),
                  "--transform: unknown transform 'stmap'; did you mean stamp?");
  EXPECT_MENTIONS(message_of<UsageError>([] {
                    loss_of({{"transform", "stamp,stamp"}});
                  }),
                  "--transform: stamp is given twice");
}

TEST(Transforms, AFailureEndsTheTrainingWithItsText) {
  for (const char* workers : {"0", "2"})
    EXPECT_MENTIONS(message_of<Error>([&] {
                      loss_of({{"transform", "failing"}, {"val-size", "0"}, {"workers", workers}});
                    }),
                    "failing: sample 17");
}

}  // namespace
}  // namespace ringtape
