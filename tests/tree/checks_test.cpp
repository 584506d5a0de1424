// .ci/run has every check of the tree.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <regex>
#include <set>
#include <string>

#include "tests/tree/sources.h"

namespace ringtape {
namespace {

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> bytes;
  while (const size_t n = std::fread(bytes.data(), 1, bytes.size(), pipe)) out.append(bytes.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return out;
}

// What .ci/run runs, and what is run by that.
std::string all_that_is_run() {
  std::string text;
  for (const char* file : {".ci/run", "test.sh", "quickstart.sh", "tests/CMakeLists.txt", "emulation/tests.cmake",
                           "tests/gpu.sh", "tests/gpu/stage.sh", "tests/arm.sh"})
    text += text_of(file);
  return text;
}

TEST(Checks, EveryScriptOfTestsIsRun) {
  const std::set<std::string> by_hand = {"tests/tidy.sh",                // an hour
                                         "emulation/mutate.py",          // another
                                         "tests/install/dockerfile.sh",  // half of one
                                         "tests/view/screenshots.py",    // of docs/view.md
                                         "tests/signals.py"};            // of docs/cluster/README.md
  const std::string run = all_that_is_run();
  int scripts = 0;
  for (const char* folder : {"tests", "emulation"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string path = fs::relative(entry.path(), kRoot);
      const bool script = (fs::status(entry).permissions() & fs::perms::owner_exec) != fs::perms::none;
      if (!entry.is_regular_file() || !script) continue;
      ++scripts;
      const std::string named = path.starts_with("tests/") ? path.substr(6) : path;
      EXPECT_TRUE(by_hand.count(path) || run.find(named) != std::string::npos) << path << " is run by nothing";
    }
  EXPECT_GT(scripts, 5);
}

TEST(Checks, EveryPresetIsBuilt) {
  const std::set<std::string> by_hand = {"dev"};
  const std::string presets = text_of("CMakePresets.json"), run = all_that_is_run();
  const std::regex name(R"re(\{"name": "(\w+)", "inherits": "base", "displayName")re");
  int seen = 0;
  for (std::sregex_iterator at(presets.begin(), presets.end(), name), end; at != end; ++at, ++seen) {
    const std::string preset = (*at)[1];
    const std::regex built("(preset|compile|build)[ =]" + preset + "\\b");
    EXPECT_TRUE(by_hand.count(preset) || std::regex_search(run, built)) << preset;
  }
  EXPECT_GE(seen, 6);
}

TEST(Checks, TheListSaysWhenAPartIsRun) {
  const std::string list = output_of("'" + (kRoot / ".ci/run").string() + "' --list");
  for (const char* line :
       {"always        packages: ./setup.sh check\n", "by changes    clang's warnings: clang_warnings\n",
        "full          line coverage of the CUDA kernels, emulated: emulation/coverage.sh\n"})
    EXPECT_NE(list.find(line), std::string::npos) << line << "in\n" << list;
}

TEST(Checks, AChangeReachesWhatIncludesIt) {
  const fs::path folder = fs::temp_directory_path() / ("ringtape_reached_" + std::to_string(::getpid()));
  fs::create_directories(folder / ".ci");
  fs::copy(kRoot / ".ci/reached.py", folder / ".ci");
  const std::string in_folder = "cd '" + folder.string() + "' && ", git = "git -c user.name=a -c user.email=b ";
  const auto reached = [&] { return output_of(in_folder + ".ci/reached.py HEAD"); };
  output_of(in_folder +
            "git init -q && mkdir k && echo >k/a.h && echo '#include \"k/a.h\"' >k/b.h && "
            "echo '  #  include \"k/b.h\"' >c.cpp && echo '// #include \"k/a.h\"' >d.cpp && git add . && " +
            git + "commit -qm 1");
  EXPECT_EQ(reached(), "");
  output_of(in_folder + "echo >>k/a.h && echo >new.cu");
  EXPECT_EQ(reached(), "c.cpp\nk/a.h\nk/b.h\nnew.cu\n");
  output_of(in_folder + "rm k/a.h new.cu");  // what includes a file that has gone does not compile
  EXPECT_EQ(reached(), "c.cpp\nk/a.h\nk/b.h\n");
  fs::remove_all(folder);
}

TEST(Checks, ASourceReachesTheTestsOfItsHeader) {
  const fs::path folder = fs::temp_directory_path() / ("ringtape_reached_tests_" + std::to_string(::getpid()));
  fs::create_directories(folder / ".ci");
  fs::copy(kRoot / ".ci/reached.py", folder / ".ci");
  const std::string in_folder = "cd '" + folder.string() + "' && ", git = "git -c user.name=a -c user.email=b ";
  const auto reached = [&] { return output_of(in_folder + ".ci/reached.py --tests HEAD"); };
  output_of(in_folder +
            "git init -q && mkdir -p k kernels/cpu tests/k tests/autograd && echo >k/a.h && "
            "echo >k/a.cpp && echo >kernels/cpu/softmax.cpp && echo '#include \"k/a.h\"' >tests/k/a_test.cpp && "
            "echo >tests/k/b_test.cpp && echo >tests/autograd/ops_test.cpp && git add . && " +
            git + "commit -qm 1");
  EXPECT_EQ(reached(), "");
  output_of(in_folder + "echo >>k/a.cpp");
  EXPECT_EQ(reached(), "a_test\n");
  output_of(in_folder + "echo >>kernels/cpu/softmax.cpp");
  EXPECT_EQ(reached(), "a_test\nops_test\n");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ringtape
