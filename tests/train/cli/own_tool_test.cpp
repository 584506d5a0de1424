// Programs that add components of their own to the command line: docs/examples/08_own_tool.cpp, and this one.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/arithmetic.h"
#include "kernels/copy.h"
#include "tests/support/cli_command.h"
#include "tests/support/settings.h"
#include "train/cli/cli.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using OwnToolTest = CliTest;  // RINGTAPE_BINARY is the example

TEST_F(OwnToolTest, ListsWhatItAdds) {
  EXPECT_MENTIONS(run("list models").out, "narrow       12 hidden units with tanh");
  EXPECT_MENTIONS(run("list data").out, "stripes");
  EXPECT_MENTIONS(run("train --help-all").out, "--callback NAME,...");
  EXPECT_MENTIONS(run("train --help --callback watch").out, "--watch-steps N");
  EXPECT_EQ(run("train --help").out.find("--watch-steps"), std::string::npos);
}

TEST_F(OwnToolTest, TrainsOnRanksResumesComparesAndEvaluates) {
  const std::string training = "train --data stripes --callback watch --watch-steps 4 --run r --checkpoint-steps 1 ";
  CliResult r = run(training + "--epochs 2 --strategy fsdp --devices 2");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "model  narrow, 806 parameters");
  EXPECT_MENTIONS(r.out, "watch: step 4, worst loss ");
  EXPECT_MENTIONS(read_file((folder_ / "work/runs/r/config.toml").string()), "watch-steps = 4");
  r = run("train --run r --resume --epochs 3 --strategy single --devices 1");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "watch: step 8, worst loss ");
  r = run("evaluate r");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(r.out, "stripes");
  r = run("evaluate r --protocol knn");
  EXPECT_EQ(r.code, 2);
  EXPECT_MENTIONS(r.err, "--model narrow: has no last linear layer whose input could be its features");
  r = run("export r --out w.safetensors");
  ASSERT_EQ(r.code, 0) << r.err;
  r = run("train --data stripes --weights w.safetensors --epochs 1");
  ASSERT_EQ(r.code, 0) << r.err;
  r = run("compare --data stripes --strategies single,ddp --devices 2 --epochs 1 --seeds 1 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(parse_json(r.out)["strategies"].size(), 2u);
}

TEST_F(OwnToolTest, ErrorsNameWhatWasMeant) {
  expect_error("train --data strips", 2, "did you mean stripes?");
  expect_error("train --data stripes --callback wach", 2, "--callback: unknown callback 'wach'; did you mean watch?");
  expect_error("train --data stripes --callback wach --devices 2", 2, "did you mean watch?");  // once, before the ranks
  expect_error("train --data stripes --callback watch,watch", 2, "--callback: watch is given twice");
  expect_error("train --data stripes --callback watch,", 2, "--callback: unknown callback ''");
  expect_error("train --data stripes --watch-steps 2", 2, "no callback is chosen; watch has it (--callback)");
  expect_error("train --data stripes --callback watch --watch-steps 0", 2, "--watch-steps: expected");
}

struct SignOptions {
  double floor = 1e-8;
};
void visit(Fields& f, SignOptions& o) {
  f("sign-floor", o.floor, {.help = "gradients below it count less", .unit = "X", .range = kAboveZero});
}

// Steps of equal length for all parameters, without state.
class Sign : public Optimizer {
 public:
  Sign(FlatParameters& parameters, const SignOptions& o) : Optimizer(parameters), options_(o) {}
  std::vector<NamedTensor> state() const override { return {}; }

 private:
  void update(int64_t begin, int64_t end, const View&, const Again<double>& lr) override {
    const NoGrad none;
    const Tensor w = parameters_.values({begin, end}), g = parameters_.gradients({begin, end});
    copy(w, w - lr() * g / maximum(abs(g), options_.floor));
  }
  const SignOptions options_;
};

const RegisterOptimizer sign({.name = "sign",
                              .settings = SignOptions{},
                              .make = [](FlatParameters& p, const Settings& s) -> std::unique_ptr<Optimizer> {
                                return std::make_unique<Sign>(p, s.as<SignOptions>());
                              }});
const RegisterSchedule halves({.name = "halves", .rate = [](const Settings&, const CourseOfLr& c) {
                                 return c.lr * std::pow(0.5, double(c.step / c.steps_per_epoch));
                               }});

TEST(OwnComponents, TrainFromSettings) {
  TrainOptions o;
  test::set(o, {{"data", "shapes"},
                {"train-size", "128"},
                {"test-size", "16"},
                {"hidden", "8"},
                {"batch-size", "32"},
                {"epochs", "2"},
                {"optimizer", "sign"},
                {"sign-floor", "0.001"},
                {"schedule", "halves"},
                {"lr", "0.01"},
                {"device", "cpu"}});
  RunSetup setup(resolve(o));
  Trainer trainer = make_trainer(setup);
  std::vector<double> rates;
  trainer.fit([&](const Metrics& m) {
    if (m.lr) rates.push_back(*m.lr);
  });
  EXPECT_EQ(rates, (std::vector<double>{0.01, 0.005}));
  EXPECT_MENTIONS(config_text(o), "sign-floor = 0.001");
}

TEST(OwnComponents, SettingsChangeTheArithmeticOfWhatIsMadeFromThem) {
  TrainOptions o;
  test::set(o, {{"data", "shapes"}, {"train-size", "64"}, {"device", "cpu"}, {"precision", "tf32"}});
  o.execution.deterministic = true;
  const ArithmeticScope restored(&Arithmetic::tf32, false);
  const TrainOptions resolved = resolve(o);
  EXPECT_FALSE(arithmetic().tf32 || arithmetic().deterministic_convolutions);
  const RunSetup setup(resolved);
  EXPECT_TRUE(arithmetic().tf32 && arithmetic().deterministic_convolutions);
}

struct SeedOptions : SignOptions {};
void visit(Fields& f, SeedOptions& o) { f("seed", o.floor, {.help = "", .unit = "X"}); }
struct LevelOptions : SignOptions {};
void visit(Fields& f, LevelOptions& o) { f("level", o.floor, {.help = "", .unit = "X"}); }

CallbackEntry callback(const char* name, Settings settings) {
  return {.name = name, .summary = "", .settings = std::move(settings), .make = nullptr};
}
void list_models() {
  std::string words[] = {"ringtape", "list", "models"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  std::exit(cli::main(3, arguments));
}

TEST(OwnComponents, HaveSettingsOfTheirOwnNames) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // a new process, which has not listed the settings yet
  EXPECT_EXIT((RegisterCallback(callback("seeds", SeedOptions{})), list_models()), testing::ExitedWithCode(2),
              "error: every run and callback seeds both have a setting 'seed'; rename a component's");
  const ModelEntry mine{.name = "mine", .summary = "", .settings = SeedOptions{}, .make = nullptr};
  EXPECT_EXIT((RegisterModel(mine), list_models()), testing::ExitedWithCode(2),
              "error: model mine and every run both have a setting 'seed'");
  EXPECT_EXIT(
      (RegisterCallback(callback("a", LevelOptions{})), RegisterCallback(callback("b", LevelOptions{})), list_models()),
      testing::ExitedWithCode(2), "error: callback a and callback b both have a setting 'level'");
}

const RegisterModel plain({.name = "plain",
                           .summary = "without features",
                           .make = [](const ModelSpec&) -> std::unique_ptr<nn::Module> {
                             return std::make_unique<nn::Sequential>();
                           }});

TEST(OwnComponents, AMethodNeedsFeatures) {
  TrainOptions o;
  test::set(o, {{"data", "shapes"}, {"train-size", "64"}, {"method", "simclr"}, {"model", "plain"}, {"device", "cpu"}});
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { RunSetup(resolve(o)); }),
                  "--model plain: does not say how many features it has");
}

TEST(OwnComponents, AreRegisteredOnce) {
  EXPECT_EXIT(RegisterSchedule({.name = "cosine", .rate = nullptr}), testing::ExitedWithCode(2),
              "two entries 'cosine' of one kind; rename one");
}

}  // namespace
}  // namespace ringtape
