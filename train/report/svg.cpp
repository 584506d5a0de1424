#include "train/report/svg.h"

#include <fmt/core.h>

#include <cmath>

namespace ringtape {
namespace {

struct Style {
  const char *name, *rules, *dark;  // `dark`: rules that differ on a dark ground
};
// Fills behind text are light in both modes. The colours of curves are those of Okabe and Ito, which colour-blind
// readers can distinguish.
constexpr Style kStyles[] = {
    {"page", "fill:#fff", "fill:#14171a"},
    {"ink", "fill:#1b1f23", "fill:#e6e8ea"},
    {"soft", "fill:#59636e", "fill:#a3acb5"},
    {"head", "fill:#1b1f23;font-weight:bold;font-size:15px", "fill:#e6e8ea"},
    {"on", "fill:#111", ""},
    {"grid", "stroke:#d5d9dd;fill:none", "stroke:#363c42"},
    {"axis", "stroke:#59636e;fill:none", "stroke:#a3acb5"},
    {"band", "fill:#f3f5f7", "fill:#1d2125"},
    {"forward", "fill:#9ecbf0;stroke:#2a5d8a", ""},
    {"backward", "fill:#ffc98b;stroke:#9a5b0c", ""},
    {"wait", "fill:#e3e3e3;stroke:#6d6d6d;stroke-dasharray:3 2", ""},
    {"optimizer", "fill:#a8dcb0;stroke:#2d7a3a", ""},
    {"bucket", "fill:#d5bff2;stroke:#66439a", ""},
    {"ready", "stroke:#66439a;stroke-width:1.5;fill:none", "stroke:#d5bff2"},
    {"s0", "stroke:#0072b2;stroke-width:2;fill:none", "stroke:#56b4e9"},
    {"s1", "stroke:#d55e00;stroke-width:2;fill:none;stroke-dasharray:7 3", "stroke:#ff8c42"},
    {"s2", "stroke:#009e73;stroke-width:2;fill:none;stroke-dasharray:2 2", "stroke:#2fd3a4"},
    {"s3", "stroke:#a2528a;stroke-width:2;fill:none;stroke-dasharray:9 3 2 3", "stroke:#e29ac9"},
    {"s4", "stroke:#8a6d00;stroke-width:2;fill:none;stroke-dasharray:4 4", "stroke:#f0d54a"},
    {"a0", "fill:#0072b2;fill-opacity:.15", "fill:#56b4e9"},
    {"a1", "fill:#d55e00;fill-opacity:.15", "fill:#ff8c42"},
    {"a2", "fill:#009e73;fill-opacity:.15", "fill:#2fd3a4"},
    {"a3", "fill:#a2528a;fill-opacity:.15", "fill:#e29ac9"},
    {"a4", "fill:#8a6d00;fill-opacity:.15", "fill:#f0d54a"},
    {"m0", "fill:#0072b2", "fill:#56b4e9"},
    {"m1", "fill:#d55e00", "fill:#ff8c42"},
    {"m2", "fill:#009e73", "fill:#2fd3a4"},
    {"m3", "fill:#a2528a", "fill:#e29ac9"},
    {"m4", "fill:#8a6d00", "fill:#f0d54a"},
};
std::string sheet() {
  std::string out = "text{font:12px system-ui,sans-serif}\n", dark;
  for (const Style& s : kStyles) {
    out += fmt::format(".{}{{{}}}\n", s.name, s.rules);
    if (*s.dark) dark += fmt::format(".{}{{{}}}\n", s.name, s.dark);
  }
  return out + "@media (prefers-color-scheme:dark){\n" + dark + "}\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

std::string path(const Svg::Points& points) {
  std::string out;
  for (const auto& [x, y] : points) out += fmt::format("{}{:.2f} {:.2f}", out.empty() ? "M" : "L", x, y);
  return out;
}

}  // namespace

Svg::Svg(double width, double height, const std::string& title) : width_(width), height_(height), title_(title) {
  rect(0, 0, width, height, "page");
}

void Svg::shape(const std::string& element, const std::string& tooltip) {
  body_ += "<" + element;
  if (tooltip.empty()) body_ += "/>\n";
  else body_ += "><title>" + escaped(tooltip) + "</title></" + element.substr(0, element.find(' ')) + ">\n";
}

void Svg::rect(double x, double y, double width, double height, const std::string& style, const std::string& tooltip) {
  shape(fmt::format("rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"", style, x, y,
                    width, height),
        tooltip);
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& style) {
  shape(fmt::format("line class=\"{}\" x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\"", style, x1, y1, x2, y2),
        {});
}

void Svg::curve(const Points& points, const std::string& style) {
  shape(fmt::format("path class=\"{}\" d=\"{}\"", style, path(points)), {});
}
void Svg::area(const Points& points, const std::string& style) {
  shape(fmt::format("path class=\"{}\" d=\"{}Z\"", style, path(points)), {});
}

void Svg::dot(double x, double y, const std::string& style, const std::string& tooltip) {
  shape(fmt::format("circle class=\"{}\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"4\"", style, x, y), tooltip);
}

void Svg::text(double x, double y, const std::string& text, const std::string& style, Anchor anchor) {
  static constexpr const char* kAnchors[] = {"start", "middle", "end"};
  body_ += fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", style, x, y,
                       kAnchors[int(anchor)], escaped(text));
}

std::string Svg::str() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" "
      "width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\">\n"
      "<title>{2}</title>\n<style>\n{3}</style>\n{4}</svg>\n",
      width_, height_, escaped(title_), sheet(), body_);
}

std::string Svg::series(size_t i) { return fmt::format("s{}", i % kSeries); }
std::string Svg::spread(size_t i) { return fmt::format("a{}", i % kSeries); }
std::string Svg::mark(size_t i) { return fmt::format("m{}", i % kSeries); }

std::vector<double> ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  const double power = std::pow(10, std::floor(std::log10((high - low) / most)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (step = factor * power; (high - low) / step <= most - 1) break;
  std::vector<double> out;
  // Avoids -0.
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) out.push_back(k * step + 0.0);
  return out;
}

}  // namespace ringtape
