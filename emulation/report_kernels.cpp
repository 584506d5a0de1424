// report_kernels FOLDER [forward] [reverse] [random] [checked]: reads the logs of the emulated tests, and prints the
// number of kernels and how many were executed in which way. It fails and names the kernels that were not executed in
// each of the requested ways.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace {

constexpr size_t kModes = 4;
constexpr std::array<const char*, kModes> kModeNames = {"forward", "reverse", "random", "checked"};
using Launches = std::array<uint64_t, kModes>;

void read(const std::filesystem::path& file, std::map<std::string, Launches>& kernels) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string mode, name;
    uint64_t forward = 0, reverse = 0, random = 0;
    fields >> mode >> forward >> reverse >> random;
    std::getline(fields >> std::ws, name);
    if (name.find("emulation_bugs") != std::string::npos) continue;  // planted bugs of the emulation's own tests
    Launches& launches = kernels[name];
    if (mode == "checked") launches[3] += forward + reverse + random;
    else launches[0] += forward, launches[1] += reverse, launches[2] += random;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::set<std::string_view> required(argv + 2, argv + argc);
  std::map<std::string, Launches> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) read(entry.path(), kernels);

  std::cout << "emulated: " << kernels.size() << " CUDA kernels;";
  uint64_t total = 0, missing = 0;
  for (size_t m = 0; m < kModes; ++m) {
    size_t executed = 0;
    for (const auto& [name, launches] : kernels) {
      total += launches[m];
      executed += launches[m] > 0;
      if (launches[m] > 0 || !required.contains(kModeNames[m])) continue;
      ++missing;
      std::cerr << "not executed (" << kModeNames[m] << "): " << name << '\n';
    }
    if (executed > 0 || required.contains(kModeNames[m])) std::cout << ' ' << kModeNames[m] << ' ' << executed;
  }
  std::cout << "; " << total << " launches\n";
  return !required.empty() && (missing > 0 || kernels.empty()) ? 1 : 0;
}
