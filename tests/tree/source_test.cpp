// The rules of the tree that the compiler cannot see.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <vector>

#include "autograd/op.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"

namespace ringtape {
namespace {

// Who may include whom (docs/design.md, section 2).
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core", {}},
    {"kernels", {"core"}},
    {"autograd", {"core", "kernels"}},
    {"comm", {"core", "kernels", "autograd"}},
    {"nn", {"core", "autograd", "comm"}},
    {"train", {"core", "kernels", "autograd", "comm", "nn"}},
};

template <class F> void for_each_match(const fs::path& file, const std::regex& pattern, F&& f) {
  std::ifstream in(file);
  std::smatch m;
  for (std::string line; std::getline(in, line);)
    if (std::regex_search(line, m, pattern)) f(m[1].str());
}

// Messages between ranks need no gradients: what of comm does is in comm/parallel, which stands on the rest.
TEST(Source, TheNetworkKnowsNoGradients) {
  const std::regex include(R"(^#include \"(autograd/|comm/parallel/|comm/bench/))");
  for_each_source(kRoot / "comm", [&](const fs::path& file) {
    const std::string folder = *std::next(fs::relative(file, kRoot).begin());
    if (folder == "parallel" || folder == "bench") return;
    for_each_match(file, include, [&](const std::string& target) { ADD_FAILURE() << file << " includes " << target; });
  });
}

// The rooms of comm; what stands at its top, the public front, is for all of them.
TEST(Source, TheRoomsOfCommIncludeOnlyWhatIsBelowThem) {
  const std::map<std::string, std::set<std::string>> may_include = {
      {"base", {}},
      {"health", {"base"}},
      {"store", {"base"}},
      {"transport", {"base", "health", "store", "algorithm"}},
      {"algorithm", {"base"}},
      {"job", {"base", "health", "store", "transport"}},
      {"launch", {"base", "store", "job"}},
  };
  const std::regex include(R"(^#include \"comm/(\w+)/)");
  for (const auto& [room, below] : may_include)
    for_each_source(kRoot / "comm" / room, [&, &room = room, &below = below](const fs::path& file) {
      for_each_match(file, include, [&](const std::string& target) {
        EXPECT_TRUE(target == room || below.count(target)) << file << " includes comm/" << target << '/';
      });
    });
  for (const char* room : {"base", "health", "store"})
    for_each_source(kRoot / "comm" / room, [&](const fs::path& file) {
      for_each_match(file, std::regex(R"(^#include \"(kernels|autograd|nn|train)/)"),
                     [&](const std::string& target) { ADD_FAILURE() << file << " includes " << target; });
    });
}

// The rooms of train are in docs/design.md, from the lowest up.
TEST(Source, TheRoomsOfTrainIncludeOnlyWhatIsBelowThem) {
  std::vector<std::string> rooms;
  for_each_match(kRoot / "docs/design.md", std::regex("^train/(\\w+)  "),
                 [&](const std::string& room) { rooms.push_back(room); });
  const auto floor = [&](const std::string& room) {
    return std::find(rooms.begin(), rooms.end(), room) - rooms.begin();
  };
  const std::regex include(R"(^#include \"train/(\w+)/)");
  for (const auto& entry : fs::directory_iterator(kRoot / "train")) {
    if (!entry.is_directory()) continue;
    const std::string room = entry.path().filename().string();
    EXPECT_NE(floor(room), long(rooms.size())) << "train/" << room << " is a new room: give it a floor there";
    for_each_source(entry.path(), [&](const fs::path& file) {
      for_each_match(file, include, [&](const std::string& target) {
        EXPECT_LE(floor(target), floor(room)) << file << " includes train/" << target << '/';
      });
    });
  }
}

// A component gets its own settings; the command line and what makes the components know those of the whole run.
TEST(Source, OnlyTheCommandLineKnowsAllSettings) {
  const std::set<std::string> allowed = {"cli", "settings", "compare"};
  const std::regex all(R"(\b(TrainOptions)\b)");
  for_each_source(kRoot / "train", [&](const fs::path& file) {
    const std::string room = fs::relative(file, kRoot / "train").begin()->string();
    if (!allowed.count(room))
      for_each_match(file, all, [&](const std::string&) { ADD_FAILURE() << file << " names TrainOptions"; });
  });
}

// Others ask its entry what it does.
TEST(Source, AStrategyIsNamedInItsRoomAlone) {
  const std::regex name("\"(zero1|zero2|fsdp|hsdp|ddp2)\"");
  for_each_source(kRoot / "train", [&](const fs::path& file) {
    if (file.parent_path().filename() != "strategy")
      for_each_match(file, name, [&](const std::string& found) { ADD_FAILURE() << file << " names " << found; });
  });
}

TEST(Source, FoldersIncludeOnlyWhatIsBelowThem) {
  const std::regex include(R"(^#include \"(\w+)/)");
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [&, &folder = folder, &below = below](const fs::path& file) {
      for_each_match(file, include, [&](const std::string& target) {
        EXPECT_TRUE(target == folder || below.count(target)) << file << " includes " << target << '/';
      });
    });
}

TEST(Source, LinesAndFilesAreShort) {
  int files = 0;
  const auto expect_short = [&](const fs::path& file) {
    static const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".toml", ".yaml"};
    if (!kinds.count(file.extension()) && file.filename() != "CMakeLists.txt" && file.filename() != "run") return;
    ++files;
    std::ifstream in(file);
    int64_t n = 0;
    for (std::string line; std::getline(in, line); ++n) EXPECT_LE(columns(line), 120) << file << ':' << n + 1;
    EXPECT_LE(n, 400) << file;
  };
  for (const char* folder : {".ci", "autograd", "bench", "cmake", "comm", "configs", "core", "docs", "emulation",
                             "kernels", "nn", "package", "tests", "train"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file()) expect_short(entry.path());
  for (const auto& entry : fs::directory_iterator(kRoot))
    if (entry.is_regular_file()) expect_short(entry.path());
  EXPECT_GT(files, 600);
}

// Two types of one name are one for the linker, which keeps the functions of either.
TEST(Source, ATypeIsDefinedOnce) {
  const std::regex opens(R"(^((?:namespace [\w:]+ \{$)|(?:(?:struct|class) [^;]*\{)))");
  const std::regex name(R"((namespace|struct|class) (?:alignas\(\w+\) )?([\w:]+)(<)?)");
  std::map<std::string, fs::path> seen;
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      if (file.extension() != ".h") return;
      std::string space;
      for_each_match(file, opens, [&](const std::string& line) {
        std::smatch m;
        ASSERT_TRUE(std::regex_search(line, m, name)) << line;
        if (m[1] == "namespace") {
          space = m[2].str();
          return;
        }
        if (m[3].matched) return;  // a specialisation
        const auto [at, first] = seen.try_emplace(space + "::" + m[2].str(), file);
        EXPECT_TRUE(first) << at->first << " is in " << file << " and in " << at->second;
      });
    });
  EXPECT_GT(seen.size(), 150u);
}

TEST(Source, IncludesAreRooted) {
  const std::regex include(R"(^#include \"([^\"]+)\")");
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      for_each_match(file, include, [&](const std::string& target) {
        EXPECT_TRUE(fs::exists(kRoot / target)) << file << " includes " << target;
      });
    });
}

TEST(Source, LibrariesOfADeviceStayInItsFolder) {
  const std::map<std::string, std::string> places = {
      {"cuda", "/cuda/"}, {"cublas", "/cuda/"}, {"cudnn", "/cuda/"},        {"nvtx", "/cuda/"},
      {"nccl", "nccl"},   {"mpi.h", "mpi"},     {"Eigen", "/core/eigen.h"}, {"dlpack", "/core/dlpack.h"}};
  const std::regex include(R"(^#include <(cuda|cublas|cudnn|nvtx|nccl|mpi\.h|Eigen|dlpack))");
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      for_each_match(file, include, [&](const std::string& library) {
        EXPECT_NE(file.string().find(places.at(library)), std::string::npos) << file << " includes " << library;
      });
    });
}

TEST(Source, NothingAsksWhetherThereIsCuda) {
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      for_each_match(file, std::regex(R"(^#\s*(?:el)?if.*(RINGTAPE_CUDA)\b)"),
                     [&](const std::string&) { ADD_FAILURE() << file << " asks; what is missing is an empty slot"; });
    });
}

// A contract kernels/x.h has x.cpp in kernels/cpu or a room of it and, unless it says "CPU only", x.cu in kernels/cuda;
// each CPU kernel is between RT_ISA_BEGIN and RT_ISA_END.
TEST(Source, KernelsAreFoundByTheirName) {
  int contracts = 0;
  std::set<std::string> implementations;
  for (const char* folder : {"kernels/cpu", "kernels/cuda"})
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      EXPECT_TRUE(implementations.insert(file.filename().string()).second) << file << ": another has its name";
    });
  for (const auto& entry : fs::directory_iterator(kRoot / "kernels")) {
    const fs::path file = entry.path();
    bool contract = false, cuda = true;
    for_each_match(file, std::regex(R"(^ *(RT_KERNEL)\()"), [&](const std::string&) { contract = true; });
    for_each_match(file, std::regex(R"(X\(name, \.\.\.\) (RT_KERNEL)\()"),
                   [&](const std::string&) { contract = true; });
    for_each_match(file, std::regex(R"(\b(CPU only)\b)"), [&](const std::string&) { cuda = false; });
    if (file.extension() != ".h" || !contract) continue;
    ++contracts;
    EXPECT_TRUE(implementations.contains(file.stem().string() + ".cpp")) << file;
    EXPECT_EQ(implementations.contains(file.stem().string() + ".cu"), cuda) << file;
  }
  for_each_source(kRoot / "kernels/cpu", [](const fs::path& file) {
    if (file.stem() == "isa") return;
    int begins = 0, ends = 0;
    for_each_match(file, std::regex("^(RT_ISA_BEGIN)$"), [&](const std::string&) { ++begins; });
    for_each_match(file, std::regex("^(RT_ISA_END)$"), [&](const std::string&) { ++ends; });
    EXPECT_EQ(begins, 1) << file;
    EXPECT_EQ(ends, 1) << file;
  });
  EXPECT_GE(contracts, 16);
}

// What lets the emulation execute a CUDA kernel (kernels/cuda/launch.cuh): launch<>() is the only way to start one and
// knows them all, and shared memory is declared by the macros.
TEST(Source, CudaKernelsKeepTheirRules) {
  std::map<std::string, fs::path> kernels;
  std::set<std::string> started;
  for_each_source(kRoot / "kernels/cuda", [&](const fs::path& file) {
    const std::string text = text_of(file);
    EXPECT_EQ(text.find("<<<"), std::string::npos) << file << ": start kernels with launch<kernel>()";
    if (file.filename() != "launch.cuh") {
      EXPECT_EQ(text.find("__shared__"), std::string::npos) << file << ": use SHARED_ARRAY or SHARED_DYN";
    }
    for (const std::string& name : found(text, R"(\blaunch\w*<(\w+)\b)")) started.insert(name);
    for (const std::string& name : found(text, R"(__global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\()"))
      kernels[name] = file;
  });
  for (const auto& [name, file] : kernels) EXPECT_TRUE(started.contains(name)) << file << ": nobody starts " << name;
  EXPECT_GE(kernels.size(), 15u);
}

TEST(Source, EveryPublicOpHasARecord) {
  std::set<std::string> recorded;
  for (const Op& op : ops()) recorded.insert(op.name);
  std::set<std::string> tables;  // the ops of the tables in kernels/
  for_each_match(kRoot / "kernels/elementwise_ops.h", std::regex(R"(^  X\((\w+),)"),
                 [&](const std::string& name) { tables.insert(name); });
  for_each_match(kRoot / "autograd/ops.h", std::regex(R"(^Tensor (\w+)\()"),
                 [&](const std::string& name) { tables.insert(name); });
  EXPECT_GE(tables.size(), 46u);
  for (const std::string& name : tables) EXPECT_TRUE(recorded.count(name)) << name << " has no record";
}

// The only places that read the environment are env.cpp and what a terminal program must look at.
TEST(Source, EnvironmentVariablesAreReadInOnePlace) {
  for (const auto& [folder, below] : kMayInclude)
    for_each_source(kRoot / folder, [](const fs::path& file) {
      if (file.filename() == "env.cpp") return;
      for_each_match(file, std::regex("(getenv *\\( *\"RINGTAPE)"),
                     [&](const std::string&) { ADD_FAILURE() << file << " reads the environment"; });
    });
}

}  // namespace
}  // namespace ringtape
