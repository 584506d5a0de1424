#include "core/registry.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace ringtape {

static char fold(char c) { return c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c))); }

int edit_distance(std::string_view a, std::string_view b) {
  const size_t n = a.size(), m = b.size();
  std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
  for (size_t i = 0; i <= n; ++i) d[i][0] = int(i);
  for (size_t j = 0; j <= m; ++j) d[0][j] = int(j);
  for (size_t i = 1; i <= n; ++i)
    for (size_t j = 1; j <= m; ++j) {
      const bool same = fold(a[i - 1]) == fold(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same});
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[n][m];
}

std::string nearest(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;  // longer words are not compared
  if (word.size() > kLongest) return {};
  std::string best;
  int best_distance = int(std::max<size_t>(word.size(), 3)) / 3 + 1;
  for (const std::string& candidate : known) {
    int distance = edit_distance(word, candidate);
    if (word.size() >= 3 && (candidate.starts_with(word) || word.starts_with(candidate))) distance = 1;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown(std::string_view what, std::string_view word, std::span<const std::string> known) {
  std::string out = "unknown " + std::string(what) + " '" + std::string(word) + "'";
  const std::string meant = nearest(word, known);
  if (!meant.empty()) return out + "; did you mean " + meant + "?";
  out += "; available:";
  for (const std::string& candidate : known) out += ' ' + candidate;
  return out;
}

void check_known(std::string_view what, std::string_view word, std::span<const std::string> known,
                 std::string_view origin) {
  if (std::find(known.begin(), known.end(), word) == known.end())
    throw UsageError(std::string(origin) + unknown(what, word, known));
}

void refuse_second_entry(std::string_view name) {
  std::fprintf(stderr, "ringtape: error: the program registers two entries '%.*s' of one kind; rename one\n",
               int(name.size()), name.data());
  std::_Exit(2);  // no destructors: static objects are still being made
}

}  // namespace ringtape
