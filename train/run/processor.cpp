#include "train/run/processor.h"

#include <fstream>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "core/text.h"

namespace ringtape {

std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const size_t begin = line.find_first_not_of(" \t:", key.size());
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  return {};
}

#if defined(__aarch64__)
std::string processor_name() {
  constexpr struct {
    const char *implementer, *part, *name;
  } kKnown[] = {{"0x41", "0xd03", "Arm Cortex-A53"},   {"0x41", "0xd08", "Arm Cortex-A72"},
                {"0x41", "0xd0b", "Arm Cortex-A76"},   {"0x41", "0xd0c", "Arm Neoverse N1"},
                {"0x41", "0xd40", "Arm Neoverse V1"},  {"0x41", "0xd49", "Arm Neoverse N2"},
                {"0x41", "0xd4f", "Arm Neoverse V2"},  {"0x41", "0xd84", "Arm Neoverse V3"},
                {"0x41", "0xd8e", "Arm Neoverse N3"},  {"0xc0", "0xac3", "Ampere AmpereOne"},
                {"0xc0", "0xac4", "Ampere AmpereOneX"}};
  constexpr const char* kFile = "/proc/cpuinfo";
  const std::string implementer = proc_value(kFile, "CPU implementer"), part = proc_value(kFile, "CPU part");
  for (const auto& known : kKnown)
    if (implementer == known.implementer && part == known.part) return known.name;
  return part.empty() ? proc_value(kFile, "model name") : concat("Arm, implementer ", implementer, ", part ", part);
}

std::string processor_features() {
  constexpr struct {
    unsigned long type, bit;
    const char* name;
  } kFeatures[] = {{AT_HWCAP, HWCAP_ATOMICS, "atomics"}, {AT_HWCAP, HWCAP_ASIMDHP, "fp16"},
                   {AT_HWCAP, HWCAP_ASIMDDP, "dotprod"}, {AT_HWCAP, HWCAP_ASIMDFHM, "fp16fml"},
                   {AT_HWCAP2, HWCAP2_BF16, "bf16"},     {AT_HWCAP2, HWCAP2_I8MM, "i8mm"},
                   {AT_HWCAP, HWCAP_SVE, "sve"},         {AT_HWCAP2, HWCAP2_SVE2, "sve2"}};
  std::string out;
  for (const auto& f : kFeatures)
    if (::getauxval(f.type) & f.bit) out += concat(out.empty() ? "" : " ", f.name);
  return out;
}
#else
std::string processor_name() { return proc_value("/proc/cpuinfo", "model name"); }
std::string processor_features() { return {}; }
#endif

}  // namespace ringtape
