#include <map>
#include <string>

#include "autograd/ops/common.h"
#include "core/parse.h"
#include "core/printable.h"
#include "kernels/copy.h"

namespace ringtape {
namespace {

// An operand with a label for each axis. The axes of "..." have the labels 1, 2, ... from the last one on: those of all
// operands are aligned at the end.
struct Term {
  Tensor x;
  std::string labels;

  bool has(char label) const { return labels.find(label) != labels.npos; }
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct Equation {
  std::string text;
  std::vector<std::string> operands;  // as given, without spaces
  std::string result;
  bool has_result = false;

  explicit Equation(std::string_view given) : text(given) {
    constexpr std::string_view others = " ,.->";
    for (const char c : given)
      RT_CHECK_AS(ShapeError, is_letter(c) || others.find(c) != others.npos, "einsum: '", printable(given),
                  "': expected letters, '...', ',', '->'");
    std::string all;
    for (const char c : given)
      if (c != ' ') all += c;
    if (const size_t arrow = all.find("->"); arrow != all.npos) {
      has_result = true;
      result = all.substr(arrow + 2);
      all.resize(arrow);
    }
    operands = split_text(all);
  }
  template <class... Parts> void check(bool holds, const Parts&... parts) const {
    RT_CHECK_AS(ShapeError, holds, "einsum: '", text, "': ", parts...);
  }
  // The labels of `part` with those of `dots` axes for "...".
  std::string labels(std::string part, int dots) const {
    std::string own;
    for (int i = dots; i > 0; --i) own += char(i);
    if (const size_t at = part.find("..."); at != part.npos) part.replace(at, 3, own);
    for (const char c : part) check(c <= kMaxRank || is_letter(c), "expected letters, '...', ',', '->'");
    return part;
  }
};

// The elements of x whose indices along axes a < b are equal, along axis a.
Tensor diagonal(const Tensor& x, int a, int b) {
  const auto view = [a, b](const Tensor& t) {
    return t.window(t.shape().without(b), t.strides().with(a, t.strides()[a] + t.strides()[b]).without(b));
  };
  return record("einsum", {x}, view(x), [own = x.shape(), view](const Tensor& dy) -> Tensors {
    const Tensor dx = zeros(own, dy.dtype(), dy.device());
    copy(view(dx), dy);
    return {dx};
  });
}

Term with_diagonals(Term t, const Equation& equation) {
  for (int b = 1; b < int(t.labels.size());) {
    const int a = int(t.labels.find(t.labels[size_t(b)]));
    if (a == b) {
      ++b;
      continue;
    }
    equation.check(t.x.shape()[a] == t.x.shape()[b], "axes ", a, " and ", b, " of shape ", t.x.shape(), " differ");
    t = {diagonal(t.x, a, b), t.labels.erase(size_t(b), 1)};
  }
  return t;
}

// Sums over all axes but those in `kept`.
Term summed(const Term& t, const std::string& kept) {
  Axes axes;
  std::string labels;
  for (int i = 0; i < t.x.rank(); ++i)
    if (kept.find(t.labels[size_t(i)]) == kept.npos) axes.push_back(i);
    else labels += t.labels[size_t(i)];
  return axes.empty() ? t : Term{sum(t.x, axes), labels};
}

// x with its axes in the order of `labels`, all of which it has.
Tensor ordered(const Term& t, const std::string& labels) {
  if (t.labels == labels) return t.x;
  std::vector<int> order;
  for (const char c : labels) order.push_back(int(t.labels.find(c)));
  return permute(t.x, order);
}

Shape sizes_of(const Term& t, const std::string& labels) {
  Shape shape;
  for (const char c : labels) shape.append(t.x.shape()[int(t.labels.find(c))]);
  return shape;
}

Shape joined(Shape a, const Shape& b) {
  for (const int64_t size : b) a.append(size);
  return a;
}

// The product of two operands, summed over the labels that are not in `kept`: a matrix product if both have such a
// label, else with broadcasting.
Term product(Term a, Term b, const std::string& kept, const Equation& equation) {
  a = summed(a, b.labels + kept), b = summed(b, a.labels + kept);
  std::string batch, inner, left, right;
  for (const char c : a.labels) (!b.has(c) ? left : kept.find(c) != kept.npos ? batch : inner) += c;
  for (const char c : b.labels)
    if (!a.has(c)) right += c;
  const std::string labels = batch + left + right;
  equation.check(int(labels.size()) <= kMaxRank, "a product of two operands has ", labels.size(), " axes, at most ",
                 kMaxRank);
  const Shape rows = sizes_of(a, left), columns = sizes_of(b, right), lead = sizes_of(a, batch);
  if (inner.empty()) {
    Shape ones = columns;
    for (int i = 0; i < ones.rank(); ++i) ones[i] = 1;
    const Tensor first = reshape(ordered(a, batch + left), joined(joined(lead, rows), ones));
    Shape other = lead;
    for (int i = 0; i < rows.rank(); ++i) other.append(1);
    return {mul(first, reshape(ordered(b, batch + right), joined(other, columns))), labels};
  }
  const int64_t depth = sizes_of(a, inner).size();
  Shape m{rows.size(), depth}, n{depth, columns.size()};
  if (!batch.empty()) m = joined({lead.size()}, m), n = joined({lead.size()}, n);
  const Tensor y = matmul(reshape(ordered(a, batch + left + inner), m), reshape(ordered(b, batch + inner + right), n));
  return {reshape(y, joined(joined(lead, rows), columns)), labels};
}

// The operands with their labels, each once, and without axes of size 1 that stretch to another's; `dots` becomes the
// number of axes of "...".
std::vector<Term> terms_of(const Equation& equation, const Tensors& operands, int& dots) {
  equation.check(equation.operands.size() == operands.size(), "for ", equation.operands.size(), " operands, got ",
                 operands.size());
  std::vector<Term> terms;
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = operands[i];
    const std::string& part = equation.operands[i];
    const bool open = part.find("...") != part.npos;
    const int own = open ? x.rank() - (int(part.size()) - 3) : 0;
    equation.check(open ? own >= 0 : int(part.size()) == x.rank(), "'", part, "' for shape ", x.shape());
    dots = std::max(dots, own);
    terms.push_back(with_diagonals({x, equation.labels(part, own)}, equation));
    for (int axis = 0; axis < terms.back().x.rank(); ++axis) {
      const int64_t size = terms.back().x.shape()[axis];
      int64_t& known = sizes.try_emplace(terms.back().labels[size_t(axis)], 1).first->second;
      equation.check(size == known || size == 1 || known == 1, "sizes ", known, " and ", size,
                     " of one label, in shape ", x.shape());
      if (known == 1) known = size;
    }
  }
  for (Term& t : terms)
    for (int axis = t.x.rank() - 1; axis >= 0; --axis)
      if (t.x.shape()[axis] != sizes[t.labels[size_t(axis)]])
        t = {reshape(t.x, t.x.shape().without(axis)), t.labels.erase(size_t(axis), 1)};
  return terms;
}

// The labels of the result: if it is not given, those of "...", then those that occur once, in alphabetical order.
std::string result_of(const Equation& equation, int dots) {
  if (equation.has_result) return equation.labels(equation.result, dots);
  std::string out = equation.labels("...", dots), all;
  for (const std::string& part : equation.operands) all += part;
  for (char c = 'A'; c <= 'z'; ++c)
    if (std::count(all.begin(), all.end(), c) == 1) out += c;
  return out;
}

}  // namespace

Tensor einsum(std::string_view text, const Tensors& operands) {
  if (const CastTo to = autocast("einsum", operands)) {
    Tensors converted;
    for (const Tensor& x : operands) converted.push_back(to(x));
    return einsum(text, converted);
  }
  const Equation equation(text);
  for (const Tensor& x : operands) check_same(operands[0], x, "einsum");
  int dots = 0;
  std::vector<Term> terms = terms_of(equation, operands, dots);
  const std::string result = result_of(equation, dots);
  std::string all;
  for (const Term& t : terms) all += t.labels;
  for (const char c : result)
    equation.check(all.find(c) != all.npos && std::count(result.begin(), result.end(), c) == 1,
                   "the result has a label that no operand has, or one twice");
  Term y = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    std::string kept = result;
    for (size_t later = i + 1; later < terms.size(); ++later) kept += terms[later].labels;
    y = product(y, terms[i], kept, equation);
  }
  return ordered(summed(y, result), result);
}

#define RT_EINSUM(equation) [](const Tensors& t) { return einsum(equation, t); }
static const RegisterOp register_einsum{{
    .name = "einsum",
    .samples = {{"matmul", {{{3, 4}}, {{4, 5}}}, RT_EINSUM("ij,jk->ik")},
                {"implicit", {{{3, 4}}, {{2, 4}}}, RT_EINSUM("ij,kj")},
                {"attention", {{{2, 3, 2, 4}}, {{2, 5, 2, 4}}}, RT_EINSUM("bqhd,bkhd->bhqk")},
                {"bilinear", {{{2, 3}}, {{4, 3, 5}}, {{2, 5}}}, RT_EINSUM("bi,oij,bj->bo")},
                {"outer", {{{3}}, {{4}}}, RT_EINSUM("i,j->ij")},
                {"elementwise", {{{3, 4}}, {{3, 4}}}, RT_EINSUM("ij,ij->ji")},
                {"dot", {{{7}}, {{7}}}, RT_EINSUM("i,i->")},
                {"one_summed", {{{2, 3, 4}}}, RT_EINSUM("ijk->kj")},
                {"trace", {{{4, 4}}}, RT_EINSUM("ii->")},
                {"diagonal", {{{3, 2, 3}}}, RT_EINSUM("iji->ji")},
                {"dots", {{{2, 1, 3, 4}}, {{3, 4, 2}}}, RT_EINSUM("...ij,...jk->...ik")},
                {"dots_summed", {{{2, 3, 4}}}, RT_EINSUM("a...->a")},
                {"stretched", {{{3, 1}}, {{3, 4}}}, RT_EINSUM("ij,ij->j")},
                {"summed_alone", {{{3, 4}}, {{2}}}, RT_EINSUM("ij,k->i")},
                {"empty", {{{0, 4}}, {{4, 5}}}, RT_EINSUM("ij,jk->ik")}},
    .workloads = {{"1024", {{{1024, 1024}}, {{1024, 1024}}}, RT_EINSUM("ij,jk->ik")}},
    .invalid = {{"count", {{{3, 4}}}, RT_EINSUM("ij,jk")},
                {"rank", {{{3}}}, RT_EINSUM("ij->i")},
                {"sizes", {{{3, 4}}, {{5, 2}}}, RT_EINSUM("ij,jk->ik")},
                {"letters", {{{3, 4}}}, RT_EINSUM("i1->i")},
                {"unknown_label", {{{3, 4}}}, RT_EINSUM("ij->ik")},
                {"label_twice", {{{3, 4}}}, RT_EINSUM("ij->ii")},
                {"none", {}, RT_EINSUM("")}},
    .flops = [](const Tensors& t, const Tensor& y) { return 2.0 * double(y.size()) * double(t[0].shape()[1]); },
    .tolerance = 8,
}};
#undef RT_EINSUM

}  // namespace ringtape
