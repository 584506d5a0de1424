// Each header includes the standard headers of what it names. A compiler tells only what its own library lacks; those
// of others include less of each other.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tree/sources.h"

namespace ringtape {
namespace {

// Names and the headers of each: the first is its own, the others bring it, too.
using Rows = std::vector<std::pair<const char*, const char*>>;

const Rows kPlain = {
    // with and without std::
    {"int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t", "cstdint"},
    {"size_t", "cstddef cstdio cstdlib cstring ctime functional memory span string string_view"},
    {"ptrdiff_t max_align_t", "cstddef"},
    {"mode_t off_t pid_t ssize_t", "sys/types.h unistd.h"},
    {"typeid", "typeinfo"},
    {"<=>", "compare array deque map optional set string string_view tuple utility variant vector"},
};

const Rows kStd = {
    {"any any_cast", "any"},
    {"all_of any_of binary_search clamp copy copy_if copy_n count count_if equal fill fill_n find find_if for_each "
     "generate lower_bound max max_element min min_element minmax minmax_element nth_element partial_sort ranges "
     "remove_if replace reverse rotate sort stable_sort transform unique upper_bound",
     "algorithm"},
    {"array to_array", "array"},
    {"atomic atomic_flag memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release "
     "memory_order_seq_cst",
     "atomic"},
    {"bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr", "bit"},
    {"chars_format from_chars to_chars", "charconv"},
    {"chrono", "chrono"},
    {"abs atan2 ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmod hypot isfinite isinf isnan ldexp "
     "llround log log10 log1p log2 lround nearbyint pow rint round signbit sin sinh sqrt tan tanh trunc",
     "cmath"},
    {"partial_ordering strong_ordering weak_ordering", "compare"},
    {"common_with convertible_to derived_from equality_comparable floating_point integral invocable predicate regular "
     "same_as signed_integral totally_ordered unsigned_integral",
     "concepts"},
    {"condition_variable condition_variable_any cv_status", "condition_variable"},
    {"nullptr_t byte", "cstddef"},
    {"FILE fclose fflush fgets fopen fprintf fread fwrite printf rename snprintf", "cstdio"},
    {"abort atexit atoi exit free getenv malloc strtod strtol strtoull system", "cstdlib"},
    {"memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp", "cstring"},
    {"deque", "deque"},
    {"exception", "exception stdexcept"},
    {"current_exception exception_ptr make_exception_ptr rethrow_exception terminate uncaught_exceptions", "exception"},
    {"filesystem", "filesystem"},
    {"equal_to function greater hash invoke less minus multiplies plus ref reference_wrapper", "functional"},
    {"filebuf fstream ifstream ofstream", "fstream"},
    {"initializer_list", "initializer_list array deque map set string unordered_map unordered_set utility vector"},
    {"fixed hex setfill setprecision setw", "iomanip"},
    {"ios istream ostream streambuf", "iosfwd fstream iostream istream ostream sstream"},
    {"cerr cin clog cout", "iostream"},
    {"back_inserter default_sentinel default_sentinel_t distance forward_iterator_tag input_iterator_tag "
     "istreambuf_iterator next prev reverse_iterator",
     "iterator"},
    {"begin data empty end rbegin rend size ssize", "iterator array deque map set span string string_view vector"},
    {"numeric_limits", "limits"},
    {"list", "list"},
    {"map multimap", "map"},
    {"construct_at default_delete destroy_at enable_shared_from_this make_shared make_unique shared_ptr "
     "static_pointer_cast unique_ptr weak_ptr",
     "memory"},
    {"call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock", "mutex"},
    {"bad_alloc launder nothrow", "new"},
    {"accumulate gcd iota lcm midpoint reduce", "numeric"},
    {"make_optional nullopt optional", "optional"},
    {"endl flush", "ostream fstream iostream sstream"},
    {"priority_queue queue", "queue"},
    {"mt19937 mt19937_64 normal_distribution random_device uniform_int_distribution", "random"},
    {"regex regex_match regex_replace regex_search smatch sregex_iterator", "regex"},
    {"set multiset", "set"},
    {"shared_lock shared_mutex", "shared_mutex"},
    {"source_location", "source_location"},
    {"dynamic_extent span", "span"},
    {"istringstream ostringstream stringstream", "sstream"},
    {"domain_error invalid_argument logic_error out_of_range range_error runtime_error", "stdexcept"},
    {"stop_source stop_token", "stop_token thread"},
    {"getline stod stoi stol stoll stoull string to_string", "string"},
    {"string_view", "string_view"},
    {"errc", "system_error charconv"},
    {"error_code", "system_error filesystem"},
    {"error_category generic_category make_error_code system_category system_error", "system_error"},
    {"jthread this_thread thread", "thread"},
    {"apply make_tuple tie tuple tuple_cat", "tuple"},
    {"bool_constant common_type_t conditional_t decay_t enable_if_t false_type integral_constant invoke_result_t "
     "is_arithmetic_v is_base_of_v is_const_v is_constant_evaluated is_convertible_v is_empty_v is_enum_v "
     "is_floating_point_v is_integral_v is_invocable_r_v is_invocable_v is_pointer_v is_same is_same_v is_signed_v "
     "is_trivially_copyable_v is_unsigned_v is_void_v make_unsigned_t remove_const_t remove_cv_t remove_cvref_t "
     "remove_pointer_t remove_reference_t true_type type_identity type_identity_t underlying_type_t void_t",
     "type_traits"},
    {"unordered_map", "unordered_map"},
    {"unordered_set", "unordered_set"},
    {"as_const cmp_less declval exchange forward in_place in_range index_sequence index_sequence_for integer_sequence "
     "make_index_sequence make_integer_sequence move swap",
     "utility"},
    {"make_pair pair", "utility map unordered_map"},
    {"get tuple_element_t tuple_size_v", "tuple array utility variant"},
    {"get_if holds_alternative monostate variant variant_size_v visit", "variant"},
    {"vector", "vector"},
};

using Names = std::set<std::string>;

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Name, as a header has it -> headers.
const std::map<std::string, std::vector<std::string>> kHeaders = [] {
  std::map<std::string, std::vector<std::string>> headers;
  for (const auto& [names, of] : kPlain)
    for (const std::string& name : words(names)) headers[name] = headers["std::" + name] = words(of);
  for (const auto& [names, of] : kStd)
    for (const std::string& name : words(names)) headers["std::" + name] = words(of);
  return headers;
}();

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Without comments and what is in quotes.
std::string code_of(std::string_view text) {
  std::string code;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    size_t end = std::string_view::npos;  // of what is left out
    if (rest.starts_with("//")) {
      end = text.find('\n', i);
    } else if (rest.starts_with("/*")) {
      end = text.find("*/", i + 2);
      if (end != text.npos) end += 2;
    } else if (rest.starts_with("R\"")) {
      const std::string close = ')' + std::string(rest.substr(2, rest.find('(') - 2)) + '"';
      end = text.find(close, i);
      if (end != text.npos) end += close.size();
    } else if (text[i] == '"' || (text[i] == '\'' && (code.empty() || !in_name(code.back())))) {  // not 1'000
      for (end = i + 1; end < text.size() && text[end] != text[i]; ++end)
        if (text[end] == '\\') ++end;
      ++end;
    } else {
      code += text[i];
      continue;
    }
    code += ' ';
    if (end >= text.size()) break;
    i = end - 1;
  }
  return code;
}

// Names of the code: of a qualified one the first two parts.
Names names_of(const std::string& code) {
  Names names;
  if (code.find("<=>") != code.npos) names.insert("<=>");
  const auto part = [&](size_t at) {
    size_t end = at;
    while (end < code.size() && in_name(code[end])) ++end;
    return end;
  };
  for (size_t i = 0; i < code.size();) {
    if (!in_name(code[i])) {
      ++i;
      continue;
    }
    size_t end = part(i);
    if (code.compare(end, 2, "::") == 0) end = part(end + 2);
    names.insert(code.substr(i, end - i));
    i = end;
    while (code.compare(i, 2, "::") == 0) i = part(i + 2);
  }
  return names;
}

// What is wrong with a header that includes, itself or by others, these standard headers.
std::vector<std::string> complaints(const std::string& text, const Names& included) {
  std::vector<std::string> out;
  for (const std::string& name : names_of(code_of(text))) {
    const auto row = kHeaders.find(name);
    if (row == kHeaders.end()) {
      if (name.starts_with("std::")) out.push_back("uses " + name + ", which the table of this test lacks");
      continue;
    }
    bool found = false;
    for (const std::string& header : row->second) found = found || included.contains(header);
    if (!found) out.push_back("uses " + name + " and includes no <" + row->second[0] + '>');
  }
  return out;
}

// The standard headers that a header includes, itself or by the project's others.
const Names& included_by(const fs::path& file) {
  static std::map<fs::path, Names> known;
  const auto [at, first] = known.try_emplace(file);
  if (!first) return at->second;
  std::istringstream in(fs::exists(file) ? text_of(file) : "");  // the emulation has headers elsewhere
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("#include ")) continue;
    std::string name = line.substr(10, line.find_first_of("\">", 10) - 10);
    const bool ours = line[9] == '"' || name.starts_with("ringtape/");
    if (name.starts_with("ringtape/")) name.erase(0, 9);
    if (!ours) at->second.insert(name);
    else at->second.merge(Names(included_by(kRoot / name)));
  }
  return at->second;
}

TEST(Headers, IncludeWhatTheyName) {
  int headers = 0;
  for (const char* folder : {"core", "kernels", "autograd", "comm", "nn", "train", "bench", "docs", "tests"})
    for_each_source(kRoot / folder, [&](const fs::path& file) {
      if (file.extension() != ".h" && file.extension() != ".cuh") return;
      ++headers;
      for (const std::string& complaint : complaints(text_of(file), included_by(file)))
        ADD_FAILURE() << fs::relative(file, kRoot).string() << ' ' << complaint;
    });
  EXPECT_GT(headers, 200);
}

TEST(Headers, TheTableFindsWhatIsMissing) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(complaints("enum class Type : uint8_t { a };", {"string"}),
            Lines{"uses uint8_t and includes no <cstdint>"});
  EXPECT_EQ(complaints("enum class Type : uint8_t { a };", {"cstdint"}), Lines{});
  EXPECT_EQ(complaints("std::int64_t n; std::string s;", {}),
            (Lines{"uses std::int64_t and includes no <cstdint>", "uses std::string and includes no <string>"}));
  EXPECT_EQ(complaints("const size_t n = std::string::npos;", {"string"}), Lines{});
  EXPECT_EQ(complaints("std::pair<int, int> p;", {"map"}), Lines{});
  EXPECT_EQ(complaints("std::chrono::steady_clock::time_point t;", {}),
            Lines{"uses std::chrono and includes no <chrono>"});
  EXPECT_EQ(complaints("auto operator<=>(const Device&) const = default;", {}),
            Lines{"uses <=> and includes no <compare>"});
  EXPECT_EQ(complaints("std::flat_map<int, int> m;", {}),
            Lines{"uses std::flat_map, which the table of this test lacks"});
  // Neither comments nor what is in quotes.
  EXPECT_EQ(complaints(R"x(int i;  // std::set
                           /* std::map
                            * uint8_t */ const char *s = "\"std::set", q = '"', *r = R"-(")" std::set)-";
                           const int n = 1'000;)x",
                       {}),
            Lines{});
  EXPECT_EQ(complaints(R"x(/**/ const char *s = "\\", c = '\'', *r = R"(")"; std::set<int> t = 1'000;)x", {}),
            Lines{"uses std::set and includes no <set>"});
}

}  // namespace
}  // namespace ringtape
