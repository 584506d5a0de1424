// What .ci/run compiles to know how fast this machine is now: the unit of .ci/budgets. Do not change it.
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

template <int n> std::string run(const std::vector<std::string>& words) {
  std::map<std::string, std::function<double(double)>> rows;
  for (const std::string& word : words)
    if (std::regex_match(word, std::regex("[a-z]+" + std::to_string(n)))) rows[word] = [&](double x) { return x * n; };
  std::vector<double> values;
  for (const auto& [name, row] : rows) values.push_back(row(double(name.size())));
  std::sort(values.begin(), values.end(), [](double a, double b) { return a * n < b; });
  std::ostringstream out;
  for (double x : values) out << x << ' ';
  return out.str();
}

template <int... n> std::string all(const std::vector<std::string>& words) { return (run<n>(words) + ...); }

std::string unit(const std::vector<std::string>& words) { return all<1, 2, 3, 4>(words); }
