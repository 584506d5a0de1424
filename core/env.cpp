#include "core/env.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/check.h"
#include "core/env_rank.h"
#include "core/parse.h"
#include "core/registry.h"

namespace ringtape::env {

static constexpr Variable kVariables[] = {
    {"RINGTAPE_THREADS", "1, 2, ...", "threads of a CPU kernel; default: every core this process may use"},
    {"RINGTAPE_CPU_ISA", "portable, avx2, avx512, avx512_bf16, amx, neon",
     "instruction set of the CPU kernels; avx512_bf16 and amx are avx512 with instructions for bf16, neon is Arm's; "
     "default: the best that this machine supports"},
    {"RINGTAPE_NAN", "0, 1", "1: stop at the first operation whose result or gradient holds a NaN, and name it"},
    {"RINGTAPE_POISON", "0, 1",
     "1: fill new memory on the CPU with NaNs, as the tests do, so that the use of uninitialised values shows"},
    {"RINGTAPE_SYNC", "0, 1", "1: wait after each CUDA kernel, so that an error names the kernel that caused it"},
    {"RINGTAPE_CUBLAS", "0, 1", "0: use ringtape's own kernel for matrix products on CUDA; default: cuBLASLt"},
    {"RINGTAPE_CUDNN", "0, 1",
     "0: use ringtape's own kernels for convolutions on CUDA; default: cuDNN, if built with it"},
    {"RINGTAPE_CONV_PLANS", "a file, off",
     "file with cuDNN's quickest plan for each convolution, measured at its first use, and with what `ringtape bench "
     "tune` found; off: measure nothing, use the plan that cuDNN proposes; default: ringtape/conv_plans in "
     "$XDG_CACHE_HOME or ~/.cache"},
    {"RINGTAPE_FUSED_CONV", "0, 1, 2",
     "1: on GPUs, compute residual blocks in 16 bits or TF32 by convolutions fused with BatchNorm; 2: on Hopper also "
     "by wgmma where there is such a kernel; 0: never; default: where `ringtape bench tune` found them faster"},
    {"RINGTAPE_EXACT_CONV", "0, 1",
     "1: never use Winograd's algorithm for convolutions, it rounds more; default: use it where it is faster"},
    {"RINGTAPE_TCP_SOCKETS", "1 to 64",
     "number of connections between two ranks over which a large message is split; default: 1 on one host, 4 between "
     "hosts"},
    {"RINGTAPE_ALLREDUCE", "ring:0-64K;direct:64K-",
     "algorithm of all-reduce for each range of bytes, the same on all ranks; default: by bytes, ranks and transport"},
    {"RINGTAPE_LOG", "error, warn, info, debug", "how much is logged to standard error; default: info"},
    {"RINGTAPE_DATA_DIR", "a folder", "folder of the data sets if --data-dir is not given"},
    {"RINGTAPE_ON_SAVE", "a command", "command for each checkpoint, snapshot and export if --on-save is not given"},
    {"RINGTAPE_STORE", "host:port, or a folder",
     "where the processes of a job find each other; set by `ringtape launch`; default: rank 0 hosts it"},
    {"RINGTAPE_TOKEN", "16 characters or more",
     "secret that all processes of a job share; required if they run on several hosts; default: a random one", true},
    {"RINGTAPE_HEARTBEAT", "1, 2, ...",
     "seconds of silence after which a process of a job is considered dead; default: 10"},
    {"RINGTAPE_DUMP", "a file",
     "file for the last collectives of a process, written if its job fails or on SIGQUIT; %r is replaced by the rank"},
    {"RINGTAPE_PROGRESS", "a file descriptor",
     "pipe to the launcher, which draws the progress bar; set by `ringtape launch` on a terminal; default: standard "
     "error, if it is a terminal"},
    {"RINGTAPE_RANK_LOG", "a file",
     "file for the device and the epochs of a rank other than 0; set by `ringtape launch --log-dir`; default: none"},
};

std::span<const Variable> variables() { return kVariables; }

std::vector<std::pair<std::string, std::string>> misspelt() {
  constexpr int kSlips = 1;  // a wrong, missing, additional or swapped letter
  const std::vector<std::string> known = names_of(kVariables);
  std::vector<std::pair<std::string, std::string>> out;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string name(*entry, std::string_view(*entry).find('='));
    if (!name.starts_with("RINGTAPE_") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    for (const std::string& meant : known)
      if (edit_distance(name, meant) <= kSlips) out.emplace_back(name, meant);
  }
  return out;
}

static std::string read(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

static int read_int(const char* name, int low, int high, int fallback = 0) {
  const std::string value = read(name);
  if (value.empty()) return fallback;
  const auto out = parse_number(value, low, high);
  RT_CHECK_AS(UsageError, out, name, "=", value, ": expected a whole number from ", low, " to ", high);
  return *out;
}

std::string cache_folder() {
  const std::string cache = read("XDG_CACHE_HOME"), home = read("HOME");
  if (cache.starts_with('/')) return cache + "/ringtape";
  return home.empty() ? "" : home + "/.cache/ringtape";
}

int threads() {
  static const int value = read_int("RINGTAPE_THREADS", 1, 1024);
  return value;
}
const std::string& cpu_isa() {
  static const std::string value = read("RINGTAPE_CPU_ISA");
  return value;
}
bool find_nan() {
  static const bool value = read_int("RINGTAPE_NAN", 0, 1);
  return value;
}
bool poison() {
  static const bool value = read_int("RINGTAPE_POISON", 0, 1);
  return value;
}
bool sync() {
  static const bool value = read_int("RINGTAPE_SYNC", 0, 1);
  return value;
}
bool cublas() {
  static const bool value = read_int("RINGTAPE_CUBLAS", 0, 1, 1);
  return value;
}
int cudnn() {
  static const int value = read_int("RINGTAPE_CUDNN", 0, 1, -1);
  return value;
}
const std::string& conv_plans() {
  static const std::string value = read("RINGTAPE_CONV_PLANS");
  return value;
}
int fused_conv() {
  static const int value = read_int("RINGTAPE_FUSED_CONV", 0, 2, -1);
  return value;
}
bool exact_conv() {
  static const bool value = read_int("RINGTAPE_EXACT_CONV", 0, 1);
  return value;
}
int tcp_sockets() {
  static const int value = read_int("RINGTAPE_TCP_SOCKETS", 1, 64);
  return value;
}
const std::string& all_reduce() {
  static const std::string value = read("RINGTAPE_ALLREDUCE");
  return value;
}
const std::string& log() {
  static const std::string value = read("RINGTAPE_LOG");
  return value;
}
const std::string& data_dir() {
  static const std::string value = read("RINGTAPE_DATA_DIR");
  return value;
}
const std::string& on_save() {
  static const std::string value = read("RINGTAPE_ON_SAVE");
  return value;
}
const std::string& store() {
  static const std::string value = read("RINGTAPE_STORE");
  return value;
}
const std::string& token() {
  static const std::string value = [] {
    std::string v = read("RINGTAPE_TOKEN");
    RT_CHECK_AS(UsageError, v.empty() || v.size() >= 16, "RINGTAPE_TOKEN has ", v.size(),
                " characters: expected 16 or more, such as what `openssl rand -hex 16` prints");
    return v;
  }();
  return value;
}
int heartbeat() {
  static const int value = read_int("RINGTAPE_HEARTBEAT", 1, 86400, 10);
  return value;
}
const std::string& dump() {
  static const std::string value = read("RINGTAPE_DUMP");
  return value;
}
int progress() {
  static const int value = read_int("RINGTAPE_PROGRESS", 3, 1 << 20);
  return value;
}
const std::string& rank_log() {
  static const std::string value = read("RINGTAPE_RANK_LOG");
  return value;
}

}  // namespace ringtape::env
