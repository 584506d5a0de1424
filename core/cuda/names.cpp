// Parses texts of the compiler and CMake: names of kernels, lists of architectures.
#include <cctype>
#include <charconv>

#include "core/cuda/device.h"

namespace ringtape::cuda {

bool runs_on(std::string_view architectures, int major, int minor) {
  const int device = 10 * major + minor;
  bool known = false;
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(';'), architectures.size());
    const std::string_view entry = architectures.substr(0, end);
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
    int built = 0;
    const auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), built);
    if (error != std::errc{}) continue;
    known = true;
    const std::string_view suffix(rest, size_t(entry.data() + entry.size() - rest));
    const bool exact = suffix.starts_with('a'),
               family = suffix.starts_with('f');  // sm_90a, sm_100f: not forward compatible
    const bool machine_code = suffix.find("-virtual") == suffix.npos, ptx = suffix.find("-real") == suffix.npos;
    if (exact && device == built) return true;
    if (exact) continue;
    if ((machine_code || family) && built / 10 == major && built <= device) return true;
    if (ptx && !family && built <= device) return true;
  }
  return !known;
}

static void remove_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at)) text.erase(at, part.size());
}

// nvcc's unnamed namespaces: "_GLOBAL__N__b723c2d9_10_softmax_cu_ef8ce4bc::".
static void remove_unnamed(std::string& text) {
  constexpr std::string_view kStart = "_GLOBAL__N__";
  for (size_t at = text.find(kStart); at != text.npos; at = text.find(kStart, at)) {
    const size_t end = text.find("::", at);
    if (end == text.npos) return;
    text.erase(at, end + 2 - at);
  }
}

std::string readable_kernel_name(std::string_view pretty_function) {
  const size_t key = pretty_function.rfind("kernel = ");
  if (key == pretty_function.npos) return std::string(pretty_function);
  std::string name(pretty_function.substr(key + 9));
  int depth = 0;
  for (size_t i = 0; i < name.size();
       ++i) {  // ends at the bracket that closes the list of parameters, or at the next parameter
    depth += name[i] == '[' || name[i] == '<' || name[i] == '(';
    if (depth == 0 && (name[i] == ']' || name[i] == ';')) name.resize(i);
    else depth -= name[i] == ']' || name[i] == '>' || name[i] == ')';
  }
  for (const char* scope : {"{anonymous}::", "(anonymous namespace)::", "<unnamed>::", "ringtape::", "cuda::"})
    remove_all(name, scope);
  remove_unnamed(name);
  if (name.starts_with("(&")) name = name.substr(2, name.size() - 3);
  if (name.starts_with("(& ")) name = name.substr(1);
  const size_t first = name.find_first_not_of("& ");
  return first == name.npos ? name : name.substr(first);
}

}  // namespace ringtape::cuda
