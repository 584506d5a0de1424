// --precision auto, and what is said of a precision that suits a device or does not.
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "kernels/cpu_isa.h"
#include "tests/support/cli_command.h"
#include "train/io/json.h"
#include "train/loop/execution.h"
#include "train/run/environment.h"

namespace ringtape {
namespace {

// A CPU with this unit, emulated where there is none.
struct WithUnit : ArithmeticScope {
  explicit WithUnit(Bf16Unit unit) : ArithmeticScope(&Arithmetic::bf16, Bf16Choice{unit}) {}
};

ExecutionOptions settled(const std::string& precision) {
  ExecutionOptions o;
  o.device = "cpu", o.precision = precision;
  settle(o);
  return o;
}

TEST(Precision, AutoIsTheOneThatTheProcessorMultiplies) {
  for (const auto& [unit, chosen] :
       {std::pair{Bf16Unit::amx, "bf16"}, {Bf16Unit::avx512_bf16, "bf16"}, {Bf16Unit::converted, "f32"}}) {
    const WithUnit with(unit);
    EXPECT_EQ(settled("auto").precision, chosen) << name_of(unit);
    for (const std::string precision : {"f32", "tf32", "bf16", "f16"})
      EXPECT_EQ(settled(precision).precision, precision) << name_of(unit);
  }
}

TEST(Precision, OfACpuIsF32UnlessTold) { EXPECT_EQ(settled("").precision, "f32"); }

TEST(Precision, SaysWhatMultipliesAndWhatTakesNoLessTime) {
  const auto text = [](const std::string& precision) { return precision_text(settled(precision)); };
  const auto note = [](const std::string& precision) { return precision_note(settled(precision)); };
  {
    const WithUnit amx(Bf16Unit::amx);
    EXPECT_EQ(text("bf16"), "bf16 by amx");
    EXPECT_EQ(text("f32") + text("f16") + note("f32") + note("bf16"), "");
    EXPECT_EQ(note("f16"),
              "--precision f16: saves memory, but no time: kernels of CPUs convert f16 to f32; bf16 is fast here");
  }
  const WithUnit none(Bf16Unit::converted);
  EXPECT_EQ(text("bf16"), "bf16 converted");
  EXPECT_EQ(text("f32") + note("f32") + note("tf32"), "");
  EXPECT_EQ(note("bf16"),
            "--precision bf16: saves memory, but no time: kernels for this processor convert bf16 to f32");
  EXPECT_EQ(note("f16"), "--precision f16: saves memory, but no time: kernels of CPUs convert f16 to f32");
}

class PrecisionRun : public CliTest {
 protected:
  static constexpr const char* kTiny =
      "train --train-size 64 --test-size 16 --batch-size 16 --hidden 4 --threads 1 --device cpu --run r ";
  // Instructions without a unit for bf16.
  const std::string none_ = concat("RINGTAPE_CPU_ISA=", name_of(cpu_isa()));
  std::string config() const { return read_file((folder_ / "work/runs/r/config.toml").string()); }
  Json recorded() const { return parse_json(read_file((folder_ / "work/runs/r/env.json").string())); }
};

TEST_F(PrecisionRun, TheChoiceIsRecordedAndStaysOnAnotherMachine) {
  const std::string chosen = auto_precision(Device{});
  const CliResult r = run(concat(kTiny, "--epochs 1 --precision auto"));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(config(), concat("precision = \"", chosen, "\""));
  EXPECT_EQ(recorded()["bf16_unit"], std::string(name_of(bf16_choice().unit)));
  EXPECT_TRUE(recorded().contains("auto_precision"));
  const std::string first = r.out.substr(0, r.out.find('\n'));
  if (chosen == "bf16") EXPECT_MENTIONS(first, concat(", bf16 by ", name_of(bf16_choice().unit), ", 1 thread;"));
  else EXPECT_EQ(first.find("bf16"), std::string::npos) << first;

  for (const std::string again : {"--precision auto", ""}) {
    const CliResult more = run(concat(kTiny, "--resume --epochs 2 ", again), none_);
    EXPECT_EQ(more.code, 0) << more.err;
    EXPECT_MENTIONS(config(), concat("precision = \"", chosen, "\""));
    EXPECT_EQ(recorded()["bf16_unit"], "converted");
    EXPECT_EQ(more.out.find("note   --precision bf16: saves memory, but no time") != std::string::npos,
              chosen == "bf16")
        << more.out;
  }
}

TEST_F(PrecisionRun, WithoutAUnitItIsF32) {
  EXPECT_EQ(run(concat(kTiny, "--epochs 1 --precision auto"), none_).code, 0);
  EXPECT_MENTIONS(config(), "precision = \"f32\"");
  const CliResult converted = run(concat(kTiny, "--epochs 1 --overwrite --precision bf16"), none_);
  EXPECT_MENTIONS(converted.out, ", bf16 converted, 1 thread;");
  const CliResult doctor = run("doctor", none_);
  EXPECT_MENTIONS(doctor.out, "bf16_unit    converted\n");
}

TEST_F(PrecisionRun, TheBenchmarkAndTheDoctorSayIt) {
  const CliResult bench = run("bench step --hidden 4 --batch-size 2 --threads 1 --device cpu --precision f16");
  EXPECT_MENTIONS(bench.out, "--precision f16: saves memory, but no time: kernels of CPUs convert f16 to f32");
  const CliResult doctor = run("doctor");
  EXPECT_MENTIONS(doctor.out, concat("bf16_unit    ", name_of(bf16_choice().unit), "\n"));
  const std::string fastest = parse_json(run("doctor --json").out)["auto_precision"].get<std::string>();
  EXPECT_MENTIONS(doctor.out, concat("precision    ", fastest, " is the fastest here for training"));
}

#if defined(RINGTAPE_EMULATION_BUILD)
TEST_F(PrecisionRun, AGpuWithTensorCoresForItHasBf16) {
  const std::string gpu = "RINGTAPE_EMULATED_GPU=devices=1 " + none_;
  const CliResult r =
      run("train --train-size 64 --test-size 16 --batch-size 16 --epochs 1 --hidden 4 --run r --device cuda "
          "--precision auto",
          gpu);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_MENTIONS(config(), "precision = \"bf16\"");
  EXPECT_MENTIONS(r.out.substr(0, r.out.find('\n')), ", bf16, ");
  EXPECT_EQ(recorded()["auto_precision"], "bf16");
  EXPECT_EQ(r.out.find("note "), std::string::npos);
}

TEST_F(PrecisionRun, AGpuRoundsProductsToTf32UnlessTold) {
  const std::string gpu = "RINGTAPE_EMULATED_GPU=devices=1 " + none_,
                    train =
                        "train --train-size 64 --test-size 16 --batch-size 16 --epochs 1 --hidden 4 --run r "
                        "--overwrite --device cuda ";
  for (const auto& [flag, precision] : {std::pair("", "tf32"), std::pair("--precision f32", "f32")}) {
    const CliResult r = run(train + flag, gpu);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_MENTIONS(config(), concat("precision = \"", precision, '"'));
    EXPECT_EQ(r.out.substr(0, r.out.find('\n')).find(", tf32, ") != std::string::npos, *flag == 0) << r.out;
  }
}
#endif

}  // namespace
}  // namespace ringtape
