#include <fmt/core.h>

#include "train/report/svg.h"
#include "train/trace/timeline.h"

namespace ringtape {
namespace {

// Pixels.
constexpr double kLeft = 128, kRight = 24, kTop = 56, kWidth = 1000, kLane = 30, kGap = 6, kBetween = 18, kLegend = 64;
constexpr double kLetter = 6.6;  // width of a wide letter

std::string ms_text(int64_t ns) { return fmt::format("{:.1f} ms", double(ns) / 1e6); }
std::string mb_text(int64_t bytes) {
  return bytes >= 100'000 ? fmt::format("{:.1f} MB", double(bytes) / 1e6)
                          : fmt::format("{:.1f} kB", double(bytes) / 1e3);
}

class Picture {
 public:
  explicit Picture(const StepTimeline& t)
      : t_(t), end_(std::max<int64_t>(t.end(), 1)), svg_(kWidth, height(t), heading(t)) {
    svg_.text(kLeft, 24, heading(t), "head");
    scale();
    double y = kTop;
    for (size_t rank = 0; rank < t_.ranks.size(); ++rank) y = draw_rank(rank, y);
    legend(y + 28);
  }
  std::string str() const { return svg_.str(); }

 private:
  static double lanes(const RankTimeline& r) { return r.buckets.empty() ? kLane : 2 * kLane + kGap; }
  static double height(const StepTimeline& t) {
    double out = kTop + kLegend;
    for (const RankTimeline& r : t.ranks) out += lanes(r) + kBetween;
    return out;
  }
  static std::string heading(const StepTimeline& t) {
    return fmt::format("{}, step {}, {} {}: {}", t.title, t.step, t.ranks.size(),
                       t.ranks.size() == 1 ? "rank" : "ranks", ms_text(t.end()));
  }
  double x(int64_t ns) const { return kLeft + (kWidth - kLeft - kRight) * double(ns) / double(end_); }

  void scale() {
    const double bottom = height(t_) - kLegend;
    for (const double ms : ticks(0, double(end_) / 1e6, 11)) {
      const double at = x(int64_t(ms * 1e6));
      svg_.line(at, kTop - 8, at, bottom, "grid");
      svg_.text(at, kTop - 12, fmt::format("{:g}", ms), "soft", Svg::Anchor::middle);
    }
    svg_.text(kLeft - 12, kTop - 12, "ms", "soft", Svg::Anchor::end);
  }

  // A bar, with its name if it fits.
  void bar(int64_t begin, int64_t end, double y, const std::string& style, const std::string& name,
           const std::string& more) {
    const double left = x(begin), width = std::max(x(end) - left, 0.8);
    svg_.rect(left, y, width, kLane, style,
              fmt::format("{}: {} to {}, {}", more, ms_text(begin), ms_text(end), ms_text(end - begin)));
    if (width > kLetter * double(name.size()) + 4)
      svg_.text(left + width / 2, y + kLane / 2 + 4, name, "on", Svg::Anchor::middle);
  }

  double draw_rank(size_t rank, double y) {
    const RankTimeline& r = t_.ranks[rank];
    svg_.text(kLeft - 12, y + kLane / 2 + 4, fmt::format("rank {}", rank), "ink", Svg::Anchor::end);
    svg_.rect(kLeft, y, kWidth - kLeft - kRight, lanes(r), "band");
    for (const RankTimeline::Span& p : r.phases) bar(p.begin, p.end, y, p.name, p.name, p.name);
    if (!r.buckets.empty()) {
      y += kLane + kGap;
      svg_.text(kLeft - 12, y + kLane / 2 + 4, "communication", "soft", Svg::Anchor::end);
    }
    for (size_t i = 0; i < r.buckets.size(); ++i) {
      const RankTimeline::Bucket& b = r.buckets[i];
      const std::string size = mb_text(b.bytes);
      bar(b.begin, b.end, y, "bucket", size, fmt::format("bucket {}, {}, complete at {}", i, size, ms_text(b.ready)));
      svg_.line(x(b.ready), y - kGap, x(b.ready), y + kLane, "ready");
    }
    return y + kLane + kBetween;
  }

  void legend(double y) {
    bool waits = false, sends = false;
    for (const RankTimeline& r : t_.ranks) {
      sends = sends || !r.buckets.empty();
      for (const RankTimeline::Span& p : r.phases) waits = waits || p.name == "wait";
    }
    double at = kLeft;
    const auto item = [&](const std::string& style, const std::string& text) {
      if (style == "ready") svg_.line(at + 8, y - 11, at + 8, y + 3, style);
      else svg_.rect(at, y - 11, 16, 14, style);
      svg_.text(at + 22, y, text);
      at += 46 + kLetter * double(text.size());
    };
    for (const char* phase : {"forward", "backward", "optimizer"}) item(phase, phase);
    if (waits) item("wait", "waits for gradients");
    if (sends) item("bucket", "a bucket of gradients on its way"), item("ready", "it is complete");
  }

  const StepTimeline& t_;
  const int64_t end_;
  Svg svg_;
};

}  // namespace

std::string timeline_picture(const StepTimeline& timeline) { return Picture(timeline).str(); }

}  // namespace ringtape
