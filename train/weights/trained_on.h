#pragma once
#include <map>
#include <string>
#include <vector>

#include "train/data/dataset.h"
#include "train/data/image/image_file.h"

namespace ringtape {

class Json;

// What a network must know about its training images: their size, how they were normalised, and what the classes are.
// It is stored with the weights and with the run, since a folder of images may change later.
struct TrainedOn {
  std::vector<float> mean, deviation;    // per channel; empty: unknown
  std::vector<std::string> class_names;  // in the order of the outputs; empty: unknown
  std::vector<int64_t> image = {};       // height, width, channels; empty: unknown
  ImageReading reading = {};
};
TrainedOn trained_on(const Dataset& data);

// Stored as metadata of weights, the members of to_json() below "ringtape.": JSON lists `mean`, `deviation`, `classes`
// and `image`, true as `upright`, a number as `scaled`, and a name as `filter`. Reading throws FormatError, beginning
// with `path`, for an invalid one; a missing list means unknown.
Json to_json(const TrainedOn& known);
void add_metadata(std::map<std::string, std::string>& metadata, const TrainedOn& known);
TrainedOn trained_on(const std::map<std::string, std::string>& metadata, const std::string& path);

// One line per known value; ranks compare these lines.
std::string lines_of(const TrainedOn& known);

// The same as a file, a JSON object with a CRC-32 of its other members' text. If there is no file, everything is
// unknown. Reading throws FormatError for a damaged one.
inline constexpr const char* kTrainedOnFile = "data.json";  // in a run's folder
void write_trained_on(const std::string& path, const TrainedOn& known);
TrainedOn read_trained_on(const std::string& path);

// Normalises images by the known values from now on. Throws UsageError for another number of channels.
void normalize_as(Splits& data, const TrainedOn& known);

// "mean 0.485, 0.456, 0.406 and deviation 0.229, 0.224, 0.225", of a set's images.
std::string normalisation_text(const Dataset& data);

// Whether the data's classes equal the known ones, in the same order; true if none are known.
bool same_classes(const Dataset& data, const TrainedOn& known);

// Throws UsageError if the classes differ. The message begins with `origin`, names the missing and the new classes, and
// ends with `otherwise`.
void check_classes(const Dataset& data, const TrainedOn& known, const std::string& origin,
                   const std::string& otherwise);

}  // namespace ringtape
