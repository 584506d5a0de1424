#pragma once
#include <map>
#include <string>
#include <vector>

#include "train/data/dataset.h"

namespace ringtape {

// What a network has to know of the images it was trained on: by which numbers they were normalised and what its
// classes are. It is kept with the weights and with the run, since a folder of images may be another one later.
struct TrainedOn {
  std::vector<float> mean, deviation;    // per channel; empty: not known
  std::vector<std::string> class_names;  // in the order of the outputs; empty: not known
};
TrainedOn trained_on(const Dataset& data);

// As metadata of weights: JSON lists under ringtape.mean, ringtape.deviation and ringtape.classes. Reading throws
// FormatError, beginning with `path`, for what is no such list; what is absent is not known.
void add_metadata(std::map<std::string, std::string>& metadata, const TrainedOn& known);
TrainedOn trained_on(const std::map<std::string, std::string>& metadata, const std::string& path);

// A line for each thing that is known, which ranks compare.
std::string lines_of(const TrainedOn& known);

// The same as a file: a JSON object. One that is not there is nothing known.
inline constexpr const char* kTrainedOnFile = "data.json";  // in the folder of a run
void write_trained_on(const std::string& path, const TrainedOn& known);
TrainedOn read_trained_on(const std::string& path);

// Images are normalised by what is known from now on. Throws UsageError for images of another number of channels.
void normalize_as(Splits& data, const TrainedOn& known);

// Whether the data's classes are the known ones, in their order; they are if none are known.
bool same_classes(const Dataset& data, const TrainedOn& known);

// Throws UsageError, beginning with `origin` and ending with `otherwise`, that names the classes that are missing and
// those that are new, unless they are the same.
void check_classes(const Dataset& data, const TrainedOn& known, const std::string& origin,
                   const std::string& otherwise);

}  // namespace ringtape
