#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringtape {

// A self-contained picture in SVG 1.1. Shapes have a named style of the style sheet in svg.cpp: dark on white, or light
// on dark if the reader's system prefers that. Lengths are in pixels; y grows downwards.
class Svg {
 public:
  using Points = std::vector<std::pair<double, double>>;
  enum class Anchor : uint8_t { start, middle, end };

  Svg(double width, double height, const std::string& title);
  void rect(double x, double y, double width, double height, const std::string& style, const std::string& tooltip = {});
  void line(double x1, double y1, double x2, double y2, const std::string& style);
  void curve(const Points& points, const std::string& style);  // a line through the points
  void area(const Points& points, const std::string& style);   // the polygon of the points
  void dot(double x, double y, const std::string& style, const std::string& tooltip = {});
  void text(double x, double y, const std::string& text, const std::string& style = "ink",
            Anchor anchor = Anchor::start);
  std::string str() const;  // the text of the file

  static constexpr size_t kSeries = 5;  // that can be told apart
  // Styles that distinguish the i-th series by colour and, for prints without colour, by dashes.
  static std::string series(size_t i);  // of a curve
  static std::string spread(size_t i);  // of the area around it
  static std::string mark(size_t i);    // of a dot on it

 private:
  void shape(const std::string& element, const std::string& tooltip);
  double width_, height_;
  std::string title_, body_;
};

// Round numbers from low to high for a scale, `most` of them at most: 0, 20, 40 ...
std::vector<double> ticks(double low, double high, int most);

}  // namespace ringtape
