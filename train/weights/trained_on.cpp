#include "train/weights/trained_on.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/check.h"
#include "train/data/files/encoded_images.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

constexpr const char *kMean = "mean", *kDeviation = "deviation", *kClasses = "classes", *kImage = "image",
                     *kUpright = "upright", *kScaled = "scaled", *kFilter = "filter", *kChecksum = "checksum";

std::vector<float> numbers(const Json& list, const std::string& where, double low) {
  bool valid = list.is_list() && !list.empty();
  std::vector<float> out;
  if (valid)
    for (const Json& x : list) {
      valid =
          valid && x.is_number() && std::isfinite(x.get<double>()) && x.get<double>() >= low && x.get<double>() < 1e30;
      if (valid) out.push_back(x.get<float>());
    }
  RT_CHECK_AS(FormatError, valid, where, ": expected a list of numbers, one for each channel");
  return out;
}

TrainedOn from_json(const Json& object, const std::string& where) {
  TrainedOn out;
  if (const Json* mean = object.find(kMean)) out.mean = numbers(*mean, where + kMean, -1e30);
  if (const Json* deviation = object.find(kDeviation)) out.deviation = numbers(*deviation, where + kDeviation, 1e-30);
  RT_CHECK_AS(FormatError, out.mean.size() == out.deviation.size(), where, kMean, " has ", out.mean.size(),
              " numbers, ", kDeviation, " ", out.deviation.size());
  if (const Json* classes = object.find(kClasses)) {
    RT_CHECK_AS(FormatError,
                classes->is_list() &&
                    std::all_of(classes->begin(), classes->end(), [](const Json& x) { return x.is_string(); }),
                where, kClasses, ": expected a list of names");
    out.class_names = classes->get<std::vector<std::string>>();
  }
  if (const Json* image = object.find(kImage)) {
    const auto positive = [](const Json& x) { return x.is_int64() && x > Json(0); };
    RT_CHECK_AS(FormatError,
                image->is_list() && image->size() == 3 && std::all_of(image->begin(), image->end(), positive), where,
                kImage, ": expected three whole numbers above 0: height, width, channels");
    out.image = image->get<std::vector<int64_t>>();
  }
  if (const Json* upright = object.find(kUpright)) {
    RT_CHECK_AS(FormatError, upright->is_bool(), where, kUpright, ": expected true or false");
    out.reading.upright = upright->get<bool>();
  }
  if (const Json* scaled = object.find(kScaled)) {
    const bool valid = scaled->is_int64() && scaled->get<int64_t>() > 0 && !out.image.empty() &&
                       scaled->get<int64_t>() >= *std::min_element(out.image.begin(), out.image.begin() + 2);
    RT_CHECK_AS(FormatError, valid, where, kScaled, ": expected a length of at least that of ", kImage);
    out.reading.resize = scaled->get<int64_t>();
  }
  if (const Json* filter = object.find(kFilter)) {
    const std::vector<std::string> known = interpolations();
    const bool valid = filter->is_string() && std::ranges::count(known, filter->get<std::string>()) > 0;
    RT_CHECK_AS(FormatError, valid, where, kFilter, ": expected bilinear or bicubic");
    out.reading.interpolation = interpolation_of(filter->get<std::string>());
  }
  return out;
}

// Names as files store them: bytes that are not UTF-8 are replaced.
std::vector<std::string> as_written(const std::vector<std::string>& names) {
  return parse_json(Json(names).text()).get<std::vector<std::string>>();
}

// The names that `others` lacks, as "'a', 'b'"; "" if there are none.
std::string names_beyond(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  constexpr int kShown = 5;
  const std::set<std::string> known(others.begin(), others.end());
  std::string out;
  int count = 0;
  for (const std::string& name : names)
    if (!known.contains(name) && ++count <= kShown) out += concat(count > 1 ? ", " : "", '\'', name, '\'');
  return count > kShown ? concat(out, " and ", count - kShown, " more") : out;
}

}  // namespace

Json to_json(const TrainedOn& known) {
  Json out = Json::object();
  if (!known.mean.empty()) out[kMean] = known.mean, out[kDeviation] = known.deviation;
  if (!known.class_names.empty()) out[kClasses] = known.class_names;
  if (!known.image.empty()) out[kImage] = known.image;
  if (known.reading.upright) out[kUpright] = true;
  if (known.reading.resize > 0) out[kScaled] = known.reading.resize;
  if (known.reading.interpolation != Interpolation::bilinear)
    out[kFilter] = interpolations()[size_t(known.reading.interpolation)];
  return out;
}

TrainedOn trained_on(const Dataset& data) {
  const Shape s = data.image();
  return {data.mean,
          data.deviation,
          data.class_names,
          {s[0], s[1], s[2]},
          data.encoded ? data.encoded->reading() : ImageReading()};
}

void add_metadata(std::map<std::string, std::string>& metadata, const TrainedOn& known) {
  const Json members = to_json(known);
  for (const auto& [key, value] : members.items()) metadata["ringtape." + key] = value.text();
}

TrainedOn trained_on(const std::map<std::string, std::string>& metadata, const std::string& path) {
  const std::string where = path + ": metadata ";
  Json object = Json::object();
  for (const char* key : {kMean, kDeviation, kClasses, kImage, kUpright, kScaled, kFilter})
    if (const auto found = metadata.find(concat("ringtape.", key)); found != metadata.end())
      object[key] = parse_json(found->second, where + key);
  return from_json(object, where);
}

std::string lines_of(const TrainedOn& known) {
  const Json members = to_json(known);
  std::string out;
  for (const auto& [key, value] : members.items()) out += concat(key, " ", value.text(), "\n");
  return out;
}

void write_trained_on(const std::string& path, const TrainedOn& known) {
  Json object = to_json(known);
  object[kChecksum] = Crc32().add(object.text()).str();
  write_file(path, object.text(2) + "\n");
}

TrainedOn read_trained_on(const std::string& path) {
  if (!is_there(path)) return {};
  constexpr int64_t kLongest = 1 << 24;  // bytes
  try {
    Json object = parse_json(read_file(path, kLongest), path);
    RT_CHECK_AS(FormatError, object.is_object(), path, ": expected an object");
    if (const Json* const checksum = object.find(kChecksum)) {
      const Json expected = *checksum;
      object.erase(kChecksum);
      RT_CHECK_AS(FormatError, expected == Json(Crc32().add(object.text()).str()), path,
                  ": damaged: its numbers and names are not those of its checksum");
    }
    return from_json(object, path + ": ");
  } catch (const FormatError& e) {
    detail::fail<FormatError>({e.what(), "; bring it back, or remove it to have it written anew from the data"});
  }
}

void normalize_as(Splits& data, const TrainedOn& known) {
  if (known.mean.empty()) return;
  data.each([&](Dataset& set) {
    RT_CHECK_AS(UsageError, size_t(set.image()[2]) == known.mean.size(), set.name, ": has images of ", set.image()[2],
                " channels, but the weights were trained on images of ", known.mean.size(), " channels");
    set.mean = known.mean, set.deviation = known.deviation;
  });
}

std::string normalisation_text(const Dataset& data) {
  const auto list = [](const std::vector<float>& numbers) {
    std::string out;
    for (const float x : numbers) out += concat(out.empty() ? "" : ", ", shortest(std::round(double(x) * 1e4) / 1e4));
    return out;
  };
  return concat("mean ", list(data.mean), " and deviation ", list(data.deviation));
}

bool same_classes(const Dataset& data, const TrainedOn& known) {
  return known.class_names.empty() || as_written(data.class_names) == as_written(known.class_names);
}

void check_classes(const Dataset& data, const TrainedOn& known, const std::string& origin,
                   const std::string& otherwise) {
  if (same_classes(data, known)) return;
  const std::vector<std::string> now = as_written(data.class_names), then = as_written(known.class_names);
  const std::string missing = names_beyond(then, now), added = names_beyond(now, then);
  std::string what;
  if (!missing.empty()) what = concat("missing: ", missing);
  if (!added.empty()) what += concat(what.empty() ? "" : "; ", "new: ", added);
  if (what.empty()) what = "the same names in another order";
  throw UsageError(
      concat(origin, " was trained on classes other than those of ", data.source, " (", what, "); ", otherwise));
}

}  // namespace ringtape
