#include "train/io/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "core/check.h"

namespace ringtape {
namespace {

class PickleParser {
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;
  using Value = Pickle::Value;

 public:
  PickleParser(std::string_view text, const std::string& path) : text_(text), path_(path) {
    out_.values.resize(3);  // None, False, True
    for (const int truth : {0, 1}) out_.values[size_t(1 + truth)] = {.kind = Kind::boolean, .integer = truth};
  }

  Pickle parse() {
    check(text_.size() <= kLargestPickle, "is too large");
    check(number<uint8_t>() == 0x80 && number<uint8_t>() <= 5, "is not of protocol 2 to 5");
    while (step(number<uint8_t>())) check_sizes();
    out_.root = pop();
    out_.bytes = at_;
    return std::move(out_);
  }

 private:
  // Performs an instruction; false at the end.
  bool step(uint8_t code) {
    switch (code) {
      case '.': return false;
      case 0x80: number<uint8_t>(); break;   // PROTO
      case 0x95: number<uint64_t>(); break;  // FRAME
      case '(': marks_.push_back(stack_.size()); break;
      case '0': pop(); break;
      case '1': pop_to_mark(); break;
      case '2': stack_.push_back(top()); break;
      case 'N': stack_.push_back(Pickle::kNone); break;
      case 0x88: stack_.push_back(2); break;
      case 0x89: stack_.push_back(1); break;
      case 'J': push_integer(number<int32_t>()); break;
      case 'K': push_integer(number<uint8_t>()); break;
      case 'M': push_integer(number<uint16_t>()); break;
      case 0x8a: push_long(number<uint8_t>()); break;
      case 0x8b: push_long(number<uint32_t>()); break;
      case 'G': push({.kind = Kind::real, .real = std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()))}); break;
      case 'X':
      case 'T':
      case 'B': push_text(number<uint32_t>()); break;
      case 0x8c:
      case 'U':
      case 'C': push_text(number<uint8_t>()); break;
      case 0x8d:
      case 0x8e:
      case 0x96: push_text(number<uint64_t>()); break;
      case ')': push({.kind = Kind::tuple}); break;
      case 't': push_items(Kind::tuple, pop_to_mark()); break;
      case 0x85:
      case 0x86:
      case 0x87: push_items(Kind::tuple, pop(size_t(code - 0x84))); break;
      case ']':
      case 0x8f: push({.kind = Kind::list}); break;
      case 'l':
      case 0x91: push_items(Kind::list, pop_to_mark()); break;
      case 'a': append(pop(1)); break;
      case 'e':
      case 0x90: append(pop_to_mark()); break;
      case '}': push({.kind = Kind::dict}); break;
      case 'd': push_items(Kind::dict, in_pairs(pop_to_mark())); break;
      case 's': append(pop(2)); break;
      case 'u': append(in_pairs(pop_to_mark())); break;
      case 'c': {
        const std::string module = line();
        push({.kind = Kind::global, .text = module + '.' + line()});
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<Id> names = pop(2);
        push({.kind = Kind::global, .text = text_of(names[0]) + '.' + text_of(names[1])});
        break;
      }
      case 'R':
      case 0x81: push_call(pop(2)); break;  // REDUCE, NEWOBJ
      case 0x92: push_call(pop(3)); break;  // NEWOBJ_EX
      case 'b': {
        const Id state = pop();
        out_.values[top()].state = state;
        break;
      }
      case 'Q': push({.kind = Kind::persistent, .arguments = pop()}); break;
      case 'q': memo_[number<uint8_t>()] = top(); break;
      case 'r': memo_[number<uint32_t>()] = top(); break;
      case 0x94: memo_[uint32_t(memo_.size())] = top(); break;
      case 'h': push_known(number<uint8_t>()); break;
      case 'j': push_known(number<uint32_t>()); break;
      default: fail(concat("has the instruction ", int(code), ", which no file of tensors needs"));
    }
    return true;
  }

  // Throws above the limits: a byte of the text can add one to each of these.
  void check_sizes() const {
    check(std::max({out_.values.size(), stack_.size(), marks_.size(), memo_.size()}) < kMaxPickled,
          "has too many values");
  }
  [[noreturn]] void fail(const std::string& what) const {
    detail::fail<FormatError>({path_, ": damaged: its pickle ", what});
  }
  void check(bool holds, const char* what) const {
    if (!holds) fail(what);
  }
  std::string_view take(uint64_t bytes) {
    check(bytes <= text_.size() - at_, "is cut off");
    at_ += bytes;
    return text_.substr(at_ - bytes, bytes);
  }
  template <class T> T number() {
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string line() {
    const size_t end = text_.find('\n', at_);
    check(end != std::string_view::npos, "is cut off");
    check(end - at_ <= kLongestName, "has a class without a short name");
    const std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }

  void push(Value value) {
    stack_.push_back(Id(out_.values.size()));
    out_.values.push_back(std::move(value));
  }
  void push_integer(int64_t x) { push({.kind = Kind::integer, .integer = x}); }
  void push_long(uint64_t bytes) {
    const std::string_view digits = take(bytes);
    if (bytes > 8) return push({.kind = Kind::other, .text = std::string(digits)});
    int64_t x = bytes > 0 && int8_t(digits.back()) < 0 ? -1 : 0;  // Arm's char has no sign
    std::memcpy(&x, digits.data(), bytes);
    push_integer(x);
  }
  void push_text(uint64_t bytes) { push({.kind = Kind::text, .text = std::string(take(bytes))}); }
  void push_items(Kind kind, std::vector<Id> items) { push({.kind = kind, .items = std::move(items)}); }
  void push_call(const std::vector<Id>& parts) {
    push({.kind = Kind::call, .function = parts[0], .arguments = parts[1]});
  }
  void push_known(uint32_t key) {
    const auto found = memo_.find(key);
    check(found != memo_.end(), "uses a value that it does not have");
    stack_.push_back(found->second);
  }
  // Puts items into the value below them.
  void append(const std::vector<Id>& items) {
    Value& into = out_.values[top()];
    check(into.kind == Kind::list || into.kind == Kind::dict || into.kind == Kind::call,
          "puts values into what is no list and no dict");
    into.items.insert(into.items.end(), items.begin(), items.end());
  }

  // What a mark hides can be used by nothing but what takes the mark away.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id top() const {
    check(stack_.size() > floor(), "uses a value that it does not have");
    return stack_.back();
  }
  Id pop() {
    const Id out = top();
    stack_.pop_back();
    return out;
  }
  std::vector<Id> pop(size_t count) {
    check(stack_.size() - floor() >= count, "uses a value that it does not have");
    std::vector<Id> out(stack_.end() - std::ptrdiff_t(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return out;
  }
  std::vector<Id> pop_to_mark() {
    check(!marks_.empty(), "uses a value that it does not have");
    std::vector<Id> out = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return out;
  }
  std::vector<Id> in_pairs(std::vector<Id> items) const {
    check(items.size() % 2 == 0, "has a key without a value");
    return items;
  }
  std::string text_of(Id id) const {
    check(out_[id].kind == Kind::text && out_[id].text.size() <= kLongestName, "has a class without a short name");
    return out_[id].text;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
  Pickle out_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint32_t, Id> memo_;
};

}  // namespace

const Pickle::Id* Pickle::find(Id id, std::string_view key) const {
  const Value& value = values[id];
  if (value.kind != Kind::dict && value.kind != Kind::call) return nullptr;
  const Id* out = nullptr;  // the last one, as in Python
  for (size_t i = 0; i + 1 < value.items.size(); i += 2)
    if (const Value& name = values[value.items[i]]; name.kind == Kind::text && name.text == key)
      out = &value.items[i + 1];
  return out;
}

Pickle parse_pickle(std::string_view text, const std::string& path) { return PickleParser(text, path).parse(); }

}  // namespace ringtape
