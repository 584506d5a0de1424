// docs/comm.md: each algorithm sends what its table says, and what is chosen is what the other table says.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "comm/algorithm.h"
#include "comm/choice.h"
#include "comm/transport/simulated.h"
#include "core/registry.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"

namespace ringtape::comm {
namespace {

using Cells = std::vector<std::string>;

std::string without(std::string text, char c) {
  std::erase(text, c);
  return text;
}

// The cells of a table's rows, without blanks around them and quotes: of the table whose first line has these headings.
std::vector<Cells> table(const std::string& headings) {
  std::istringstream page(text_of("docs/comm.md"));
  std::vector<Cells> out;
  std::string line;
  while (std::getline(page, line) && line != headings) {
  }
  std::getline(page, line);
  while (std::getline(page, line) && line.starts_with('|')) {
    std::istringstream row(line.substr(1));
    out.emplace_back();
    for (std::string cell; std::getline(row, cell, '|');) {
      const size_t begin = std::min(cell.find_first_not_of(' '), cell.size());
      out.back().push_back(without(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin), '`'));
    }
  }
  EXPECT_GT(out.size(), 20u) << headings;
  return out;
}

// The value of a text such as "2 (n - 1) / n V".
class Formula {
 public:
  Formula(std::string_view text, const std::map<char, double>& variables) : text_(text), variables_(variables) {}
  double value() {
    const double out = sum();
    EXPECT_EQ(next(), '\0') << text_;
    return out;
  }

 private:
  char next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool takes(char c) {
    const bool is = next() == c;
    at_ += is;
    return is;
  }
  double sum() {
    double out = product();
    while (next() == '+' || next() == '-') {
      const double sign = takes('+') ? 1 : -1;
      if (sign < 0) takes('-');
      out += sign * product();
    }
    return out;
  }
  double product() {
    double out = factor();
    for (char c = next(); c == '/' || c == '(' || std::isalnum(c); c = next())
      if (takes('/')) out /= factor();
      else out *= factor();
    return out;
  }
  double factor() {
    if (takes('(')) {
      const double out = sum();
      EXPECT_TRUE(takes(')')) << text_;
      return out;
    }
    if (!std::isdigit(next())) return variables_.at(text_[at_++]);
    double number = 0;
    for (; at_ < text_.size() && std::isdigit(text_[at_]); ++at_) number = 10 * number + (text_[at_] - '0');
    return number;
  }

  const std::string_view text_;
  const std::map<char, double>& variables_;
  size_t at_ = 0;
};

constexpr int64_t kPartBytes = 64;  // so that each message is one piece

bool has_parts(Collective kind) {
  return kind != Collective::all_reduce && kind != Collective::broadcast && kind != Collective::reduce;
}

// Steps; messages and bytes of the rank and direction that have most.
using Counts = std::array<int64_t, 3>;

Counts counted(const Algorithm& algorithm, Collective kind, int n, int island) {
  const int64_t whole = n * kPartBytes;
  const Operation operation{.kind = kind,
                            .dtype = DType::f32,
                            .count = kind == Collective::barrier ? 0 : (has_parts(kind) ? kPartBytes : whole) / 4,
                            .sequence = 1};
  Topology topology = Topology::one_switch({1, 0});
  if (island > 1) topology.island = topology.rails = island;
  const auto run = [&](Transport& t) {
    const auto x = t.allocate(size_t(whole)), y = t.allocate(size_t(whole));
    t.begin(operation, Deadline(Seconds(60)));
    algorithm.of(kind)(t, x.get(), y.get());
  };
  const SimulationResult r = simulate(n, topology, run, Payload::counted);
  std::map<std::pair<int, bool>, std::pair<int64_t, int64_t>> loads;  // of ranks, in and out
  for (const LinkLoad& link : r.links) {
    int rank = 0, rail = 0;
    if (std::sscanf(link.name.c_str(), "island %d rail %d", &rank, &rail) == 2) rank = rank * island + rail;
    else EXPECT_EQ(std::sscanf(link.name.c_str(), "rank %d", &rank), 1) << link.name;
    auto& [messages, bytes] = loads[{rank, link.name.ends_with("out")}];
    messages += link.messages, bytes += link.bytes;
  }
  Counts out{r.steps, 0, 0};
  for (const auto& [port, load] : loads) out[1] = std::max(out[1], load.first), out[2] = std::max(out[2], load.second);
  return out;
}

// Whether a cell such as "2 k; < 3 V" says this number.
bool says(const std::string& cell, const std::map<char, double>& variables, int64_t number) {
  const size_t other = cell.find(';');
  std::string text = cell.substr(0, other);
  if (other != cell.npos && !std::has_single_bit(unsigned(variables.at('n')))) text = cell.substr(other + 1);
  const size_t bound = text.find('<');
  const double value = Formula(std::string_view(text).substr(bound == text.npos ? 0 : bound + 1), variables).value();
  return bound == text.npos ? std::abs(double(number) - value) < 1e-9 * (1 + value) : double(number) < value;
}

TEST(CommPage, SaysWhatEachAlgorithmSends) {
  std::set<std::pair<std::string, std::string>> shown;
  for (const Cells& row : table("| collective | algorithm | steps | messages | bytes |")) {
    ASSERT_EQ(row.size(), 5u);
    shown.emplace(row[0], row[1]);
    const Algorithm& algorithm = find_algorithm(row[1]);
    const Collective kind = parse_collective(row[0]);
    const bool islands = row[1] == "two_level";
    const int g = islands ? 4 : 1;
    ASSERT_NE(algorithm.of(kind), nullptr) << row[0] << " by " << row[1];
    for (const int n : {4, 5, 6, 7, 8, 9, 12, 16, 17, 32}) {
      if (islands && (n < 8 || !std::has_single_bit(unsigned(n)))) continue;
      const Counts real = counted(algorithm, kind, n, g);
      if (row[2].starts_with("as ")) {
        EXPECT_EQ(real, counted(find_algorithm(row[2].substr(3)), kind, n, g)) << row[0] << " by " << row[1];
        continue;
      }
      const std::map<char, double> variables = {
          {'n', n},         {'k', std::bit_width(unsigned(n)) - 1},     {'q', (n + 2) / 4},
          {'g', double(g)}, {'j', std::bit_width(unsigned(n / g)) - 1}, {'V', double(n * kPartBytes)}};
      for (size_t i = 0; i < real.size(); ++i)
        EXPECT_TRUE(says(row[i + 2], variables, real[i]))
            << row[0] << " by " << row[1] << ", " << n << " ranks: " << row[i + 2] << " is not " << real[i];
    }
  }
  for (const Algorithm* algorithm : algorithms())
    for (int kind = 0; kind <= int(Collective::all_to_all); ++kind)
      if (algorithm->of(Collective(kind))) {
        EXPECT_TRUE(shown.contains({std::string(name_of(Collective(kind))), algorithm->name})) << algorithm->name;
      }
}

// What the page's last table chooses.
std::string chosen(const std::vector<Cells>& rows, std::string_view kind, bool shared, int n, int island,
                   size_t bytes) {
  const auto fits = [](const std::string& most, size_t value) {
    return most.empty() || value <= std::stoul(most) << 10;  // "64 KiB"
  };
  const std::map<std::string, bool> here = {{"", true},
                                            {"in shared memory", shared},
                                            {"on several islands", island > 1 && island < n},
                                            {"on one island", island > 1 && island == n},
                                            {"2^k > 2", n > 2 && std::has_single_bit(unsigned(n))},
                                            {"n > 2", n > 2}};
  for (const Cells& row : rows)
    if ((row[0] == kind || row[0] == "all") && here.at(row[1]) && fits(row[2], bytes) &&
        fits(row[3], bytes / size_t(n)))
      return row[4];
  return "none";
}

TEST(CommPage, SaysWhatIsChosen) {
  const std::vector<Cells> rows = table("| collective | ranks | bytes | per rank | algorithm |");
  for (int i = 0; i <= int(Collective::all_to_all); ++i)
    for (const bool shared : {false, true})
      for (const int n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 64})
        for (const int island : {1, 2, n}) {
          if (n % island) continue;
          const auto kind = Collective(i);
          const Choice choice({.shares_memory = shared}, n, island);
          for (const int64_t unit : {1, 3, n, 3 * n})  // the limits are 2^i or 3 2^i, of the whole or of a part
            for (int64_t size = unit; size < int64_t{1} << 31; size *= 2)
              for (const int64_t count : {size - 1, size, size + 1, size + n}) {
                const Operation operation{
                    .kind = kind, .dtype = DType::u8, .count = kind == Collective::barrier ? 0 : count};
                const size_t bytes = operation.bytes() * (has_parts(kind) ? size_t(n) : 1);
                ASSERT_EQ(choice(operation, false).name, chosen(rows, name_of(kind), shared, n, island, bytes))
                    << operation.str() << ", " << n << " ranks, islands of " << island << ", shared " << shared;
              }
        }
}

}  // namespace
}  // namespace ringtape::comm
