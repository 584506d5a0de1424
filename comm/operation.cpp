#include "comm/operation.h"

#include <array>

#include "core/text.h"

namespace ringtape::comm {

constexpr std::array<std::string_view, 9> kNames = {
    "barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all"};

static constexpr bool reduces(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}
static constexpr bool has_root(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::reduce || kind == Collective::gather ||
         kind == Collective::scatter;
}

// FNV-1a over the fields.
uint64_t hash_of(std::span<const uint64_t> fields) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint64_t field : fields)
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (field >> (8 * byte) & 0xff)) * 0x100000001b3u;
  return hash;
}

std::string_view name_of(Collective kind) { return kNames[size_t(kind)]; }

Collective parse_collective(std::string_view name) {
  std::string all;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return Collective(i);
    all += concat(i ? ", " : "", kNames[i]);
  }
  throw UsageError(concat("unknown collective '", name, "'; available: ", all));
}

uint64_t Operation::fingerprint() const {
  return hash_of(std::array{uint64_t(kind), uint64_t(dtype), uint64_t(op), uint64_t(root), uint64_t(count), cuts,
                            uint64_t(algorithm)});
}

std::string Operation::str() const {
  if (kind == Collective::barrier) return concat("barrier #", sequence);
  return concat(kind, " #", sequence, " (", reduces(kind) ? concat(op, ", ") : "", dtype, ", ", with_commas(count),

                count == 1 ? " element" : " elements", cuts ? " at most" : "",
                has_root(kind) ? concat(", root ", root) : "", ")");
}

}  // namespace ringtape::comm
