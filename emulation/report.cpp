#include "emulation/report.h"

#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/text.h"
#include "emulation/emulation.h"
#include "emulation/scheduler.h"

namespace ringtape::emulation {
namespace {

constexpr size_t kKeptAtMost = 1000;

struct Pending {
  std::string kind, thread, text, other_text;
  Where where, other;
};

struct State {
  uint64_t count = 0;
  std::set<std::tuple<std::string, const void*, std::string, int>> seen;
  std::vector<Pending> pending;  // found while a kernel ran, on its small stack; formatted later
  std::vector<Report> reports;
  bool read = true;
};
State& state() {
  static State& s = *new State;
  return s;
}

// The file that contains the instruction, and the instruction's address in its debugging information.
struct Module {
  std::string file;
  uintptr_t address = 0;
};
Module module_of(const void* pc) {
  struct Search {
    uintptr_t pc;
    Module found;
  } search{reinterpret_cast<uintptr_t>(pc), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type != PT_LOAD || s.pc < begin || s.pc >= begin + part.p_memsz) continue;
          s.found = {info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe", s.pc - info->dlpi_addr};
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

// "kernels/cuda/rows.cuh:20 (called from kernels/cuda/softmax.cu:41)": the innermost and the outermost call inlined at
// the instruction, outside the emulation's own code.
std::string line_of(const void* pc) {
  static auto& known = *new std::map<const void*, std::string>;
  if (const auto it = known.find(pc); it != known.end()) return it->second;
  char hex[32];
  std::snprintf(hex, sizeof hex, "%p", pc);
  std::string& text = known[pc] = concat("instruction ", hex);
  const Module module = module_of(pc);
  if (module.file.empty()) return text;
  char file[4096] = "";
  std::string path = module.file;
  if (path == "/proc/self/exe" && realpath("/proc/self/exe", file)) path = file;
  std::snprintf(hex, sizeof hex, "0x%zx", size_t(module.address));
  FILE* const out = popen(concat("addr2line -i -e '", path, "' ", hex, " 2>/dev/null").c_str(), "r");
  if (!out) return text;
  std::vector<std::string> calls;  // innermost first
  for (char line[4096]; std::fgets(line, sizeof line, out);) {
    const std::string_view place(line, std::strcspn(line, " \n"));
    if (!place.starts_with("?") && !place.ends_with("?") && place.find("emulation/device") == place.npos)
      calls.emplace_back(place);
  }
  pclose(out);
  if (!calls.empty()) text = calls.size() == 1 ? calls[0] : concat(calls.front(), " (called from ", calls.back(), ")");
  return text;
}

// Paths relative to the project's folder.
std::string shortened(std::string text) {
  const std::string_view here = __FILE__;
  const std::string root(here.substr(0, here.rfind("emulation/")));
  for (size_t at = text.find(root); !root.empty() && at != text.npos; at = text.find(root, at))
    text.erase(at, root.size());
  return text;
}

std::string text_of(const Where& where) {
  if (where.place.file) return shortened(concat(where.place.file, ":", where.place.line));
  return where.pc ? shortened(line_of(static_cast<const char*>(where.pc) - 1))
                  : "";  // pc is a return address: the call is before it
}

std::string with_place(const std::string& text, const Where& where) {
  const std::string place = text_of(where);
  return place.empty() ? text : concat(text, " at ", place);
}

void write_down(State& s) {
  for (const Pending& p : s.pending) {
    std::string line = concat(p.kind, ": ", p.thread, p.thread.empty() ? "" : ": ", with_place(p.text, p.where));
    if (!p.other_text.empty()) line += ", " + with_place(p.other_text, p.other);
    s.reports.push_back({p.kind, line});
  }
  s.pending.clear();
}

// Prints reports that no test has read.
struct Printer {
  ~Printer() {
    if (state().read) return;
    for (const Report& r : reports()) std::fprintf(stderr, "emulation: %s\n", r.text.c_str());
  }
} printer;

}  // namespace

bool reported_again(const char* kind, const void* pc) {
  State& s = state();
  if (!s.seen.count({kind, pc, "", 0})) return false;
  ++s.count;
  return true;
}

void report(const char* kind, Where where, const std::string& text, Where other, const std::string& other_text) {
  State& s = state();
  ++s.count;
  if (s.pending.size() + s.reports.size() >= kKeptAtMost) return;
  const bool known_place = where.pc || where.place.file;
  const std::string what = known_place ? where.place.file ? where.place.file : "" : text;
  if (!s.seen.insert({kind, where.pc, what, where.place.line}).second) return;
  s.pending.push_back({kind, running_thread(), text, other_text, where, other});
  s.read = false;
}

uint64_t report_count() { return state().count; }

const std::vector<Report>& reports() {
  State& s = state();
  write_down(s);
  s.read = true;
  return s.reports;
}

void clear_reports() {
  State& s = state();
  s.seen.clear();
  s.pending.clear();
  s.reports.clear();
  s.read = true;
}

}  // namespace ringtape::emulation
