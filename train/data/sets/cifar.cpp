#include "train/data/sets/cifar.h"

#include <filesystem>
#include <sstream>

#include "core/parallel.h"
#include "train/io/file.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCifarSide = 32, kCifarChannels = 3, kPixels = kCifarSide * kCifarSide,
                  kImage = kPixels * kCifarChannels;

struct CifarSource {
  const char* name;
  const char* folder;         // as the archive unpacks to
  const char* python_folder;  // folder of the Python version, which is not supported
  std::vector<const char*> train_files;
  const char* test_file;
  int64_t records;      // per training file
  int64_t label_bytes;  // per record; the last one counts
  const char* names_file;
  int classes;
  std::vector<float> mean, deviation;
};

constexpr int64_t kTestRecords = 10'000;

const CifarSource kCifar10 = {
    "cifar10",
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    "test_batch.bin",
    10'000,
    1,
    "batches.meta.txt",
    10,
    {0.4914f, 0.4822f, 0.4465f},
    {0.2470f, 0.2435f, 0.2616f}};
const CifarSource kCifar100 = {"cifar100",
                               "cifar-100-binary",
                               "cifar-100-python",
                               {"train.bin"},
                               "test.bin",
                               50'000,
                               2,
                               "fine_label_names.txt",
                               100,
                               {0.5071f, 0.4865f, 0.4409f},
                               {0.2673f, 0.2564f, 0.2762f}};

fs::path find_cifar_folder(const CifarSource& source, const DataRequest& request) {
  const fs::path root = data_root(request), below = root / source.folder;
  for (const fs::path& folder : {below, root})
    for (const char* file : {source.train_files[0], source.test_file})
      if (is_there(folder / file)) return folder;
  const std::string get = how_to_get(source.name);
  for (const fs::path& folder : {root / source.python_folder, root})
    RT_CHECK_AS(MissingData, !is_there(folder / "data_batch_1") && !is_there(folder / "meta"), source.name, ": ",
                folder.string(), " holds the version for Python; expected the binary version: ", get);
  RT_CHECK_AS(MissingData, is_folder_at(root), source.name, ": no folder ", root.string(), "; ", get);
  detail::fail<MissingData>(
      {source.name, ": no ", source.train_files[0], " in ", below.string(), " or ", root.string(), "; ", get});
}

std::vector<std::string> read_names(const CifarSource& source, const fs::path& folder) {
  const std::string path = (folder / source.names_file).string();
  std::istringstream lines(read_file(path));
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) out.push_back(line);
  }
  RT_CHECK_AS(FormatError, int(out.size()) == source.classes, path, ": expected ", source.classes,
              " class names, one per line, got ", out.size());
  return out;
}

Dataset load_cifar_split(const CifarSource& source, const fs::path& folder, const std::vector<const char*>& files,
                         int64_t records) {
  Dataset set;
  set.name = source.name;
  set.source = fs::absolute(folder).lexically_normal().string();
  set.classes = source.classes;
  set.class_names = read_names(source, folder);
  set.mean = source.mean;
  set.deviation = source.deviation;
  const int64_t n = records * int64_t(files.size());
  set.images = Tensor({n, kCifarSide, kCifarSide, kCifarChannels}, DType::u8);
  set.labels = Tensor({n}, DType::i64);
  for (size_t f = 0; f < files.size(); ++f) {
    const int64_t first = int64_t(f) * records;
    read_cifar((folder / files[f]).string(), {records, source.label_bytes, source.classes},
               set.images.data<uint8_t>() + first * kImage, set.labels.data<int64_t>() + first);
  }
  return set;
}

Splits load_cifar(const CifarSource& source, const DataRequest& request) {
  const fs::path folder = find_cifar_folder(source, request);
  return {load_cifar_split(source, folder, source.train_files, source.records),
          load_cifar_split(source, folder, {source.test_file}, kTestRecords)};
}

}  // namespace

void read_cifar(const std::string& path, const CifarFile& file, uint8_t* images, int64_t* labels) {
  const int64_t record = file.label_bytes + kImage, expected = file.records * record;
  std::error_code error;
  const auto bytes = int64_t(fs::file_size(path, error));
  RT_CHECK_AS(IoError, !error, path, ": cannot read: ", error.message());
  RT_CHECK_AS(FormatError, bytes == expected, path, ": expected ", expected, " bytes (", file.records, " records of ",
              record, "), got ", bytes,
              bytes < expected ? "; it is truncated: download it again" : "; is this the right file?");
  const std::string content = read_file(path);
  RT_CHECK_AS(IoError, int64_t(content.size()) == expected, path, ": changed while it was read");
  parallel_for(file.records, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto* from = reinterpret_cast<const uint8_t*>(content.data()) + i * record;
      labels[i] = from[file.label_bytes - 1];
      RT_CHECK_AS(FormatError, labels[i] < file.classes, path, ": label ", labels[i], " in record ", i,
                  "; expected labels from 0 to ", file.classes - 1);
      const uint8_t* planes = from + file.label_bytes;
      uint8_t* to = images + i * kImage;
      for (int64_t p = 0; p < kPixels; ++p)
        for (int64_t c = 0; c < kCifarChannels; ++c) to[p * kCifarChannels + c] = planes[c * kPixels + p];
    }
  });
}

Splits load_cifar10(const DataRequest& request) { return load_cifar(kCifar10, request); }
Splits load_cifar100(const DataRequest& request) { return load_cifar(kCifar100, request); }

}  // namespace ringtape
