// report_kernels [--require-all] FOLDER: reads the logs of the emulated tests and prints how many kernels there are and which
// were executed how. With --require-all it fails, naming them, if a kernel was not executed under every schedule and checked.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

namespace {

constexpr size_t kModes = 4;
constexpr std::array<const char*, kModes> kModeNames = {"forward", "reverse", "random", "checked"};
using Launches = std::array<uint64_t, kModes>;

void read(const std::filesystem::path& file, std::map<std::string, Launches>& kernels, bool& any_checked) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string mode, name;
    uint64_t forward = 0, reverse = 0, random = 0;
    fields >> mode >> forward >> reverse >> random;
    std::getline(fields >> std::ws, name);
    if (name.find("emulation_bugs") != std::string::npos) continue;  // planted ones, of the emulation's own tests
    Launches& launches = kernels[name];
    if (mode == "checked") {
      any_checked = true;
      launches[3] += forward + reverse + random;
    } else {
      launches[0] += forward, launches[1] += reverse, launches[2] += random;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool require_all = argc > 1 && std::string(argv[1]) == "--require-all";
  const std::filesystem::path folder = argv[argc - 1];
  std::map<std::string, Launches> kernels;
  bool any_checked = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) read(entry.path(), kernels, any_checked);
  const size_t modes = any_checked ? kModes : kModes - 1;  // a build under sanitizers has no checker

  std::cout << "emulated: " << kernels.size() << " CUDA kernels;";
  for (size_t m = 0; m < modes; ++m)
    std::cout << ' ' << kModeNames[m] << ' '
              << std::count_if(kernels.begin(), kernels.end(), [m](const auto& k) { return k.second[m] > 0; });
  uint64_t total = 0, missing = 0;
  for (const auto& [name, launches] : kernels)
    for (size_t m = 0; m < modes; ++m) {
      total += launches[m];
      if (launches[m] > 0) continue;
      ++missing;
      if (require_all) std::cerr << "not executed (" << kModeNames[m] << "): " << name << '\n';
    }
  std::cout << "; " << total << " launches\n";
  return require_all && (missing > 0 || kernels.empty()) ? 1 : 0;
}
