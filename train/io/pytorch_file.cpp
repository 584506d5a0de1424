#include "train/io/pytorch_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/printable.h"
#include "kernels/copy.h"
#include "train/io/json.h"
#include "train/io/zip.h"

namespace ringtape {

// The bytes of storages.
class PyTorchFile::Source {
 public:
  virtual ~Source() = default;
  // Throws FormatError unless the file has all bytes of a storage.
  virtual void check(const PickledStorage& storage) = 0;
  // Bytes [begin, begin + bytes) of it.
  virtual void read(const PickledStorage& storage, uint64_t begin, void* to, uint64_t bytes) = 0;
};

namespace {

constexpr const char* kMetadata = "ringtape.json";

// NAME/data.pkl, NAME/byteorder, NAME/data/KEY.
class ZipSource : public PyTorchFile::Source {
 public:
  explicit ZipSource(const std::string& path) : path_(path), zip_(path) {
    for (const ZipEntry& entry : zip_.entries())
      if (entry.name.ends_with("/data.pkl") && entry.name.find('/') == entry.name.size() - 9)
        prefix_ = entry.name.substr(0, entry.name.size() - 8);
    RT_CHECK_AS(FormatError, !prefix_.empty(), path, ": a ZIP archive, but not PyTorch's: it has no data.pkl");
    const ZipEntry* const order = zip_.find(prefix_ + "byteorder");
    RT_CHECK_AS(FormatError, !order || zip_.read(*order, 16) == "little", path,
                ": was written by a big-endian machine");
  }
  std::string pickle() { return zip_.read(*zip_.find(prefix_ + "data.pkl"), kLargestPickle); }
  std::map<std::string, std::string> metadata() {
    const ZipEntry* const entry = zip_.find(prefix_ + kMetadata);
    if (!entry) return {};
    const std::string what = path_ + ": " + kMetadata;
    const Json members = parse_json(zip_.read(*entry, kLargestMetadata), what);
    std::map<std::string, std::string> out;
    RT_CHECK_AS(FormatError, members.is_object(), what, " is no object");
    for (const auto& [key, value] : members.items()) {
      RT_CHECK_AS(FormatError, value.is_string(), what, " must map strings to strings");
      out[key] = value.get<std::string>();
    }
    return out;
  }
  void check(const PickledStorage& storage) override {
    const ZipEntry* const entry = zip_.find(prefix_ + "data/" + storage.key);
    const auto name = [&] { return printable_name(storage.key); };
    RT_CHECK_AS(FormatError, entry && entry->stored, path_, ": damaged: it has no uncompressed data/", name());
    RT_CHECK_AS(FormatError, entry->size / element_bytes(storage, path_) >= storage.count, path_, ": damaged: data/",
                name(), " has ", entry->size, " bytes, which is not what its ", storage.count, " numbers need");
  }
  void read(const PickledStorage& storage, uint64_t begin, void* to, uint64_t bytes) override {
    const ZipEntry* const entry = zip_.find(prefix_ + "data/" + storage.key);
    if (checked_.insert(storage.key).second) zip_.check(*entry);
    zip_.read(*entry, begin, to, bytes);
  }

 private:
  std::string path_;
  ZipReader zip_;
  std::string prefix_;
  std::set<std::string> checked_;
};

// Pickles of a magic number, a version, the machine's properties, the object, and the keys of its storages; then the
// storages, each after its count as i64.
class LegacySource : public PyTorchFile::Source {
 public:
  explicit LegacySource(const std::string& path)
      : path_(path), file_(path), begin_(file_.read(0, std::min<uint64_t>(file_.size(), kLargestPickle))) {
    const Pickle magic = next();
    RT_CHECK_AS(FormatError, magic[magic.root].text == "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", path,
                ": a Python pickle, but not one of PyTorch's");
    next();  // the version
    const Pickle machine = next();
    const Pickle::Id* const little = machine.find(machine.root, "little_endian");
    RT_CHECK_AS(FormatError, !little || machine[*little].integer == 1, path, ": was written by a big-endian machine");
  }
  Pickle next() {
    Pickle out = parse_pickle(std::string_view(begin_).substr(at_), path_);
    at_ += out.bytes;
    return out;
  }
  // Finds the storages, after the object.
  void find(const std::map<std::string, PickledStorage>& storages) {
    const Pickle keys = next();
    for (const Pickle::Id id : keys[keys.root].items) {
      const std::string& key = keys[id].text;
      const auto storage = storages.find(key);
      RT_CHECK_AS(FormatError, storage != storages.end() && file_.size() - at_ >= 8, path_,
                  ": damaged: it has no storage ", printable_name(key));
      uint64_t count = 0;
      file_.read(at_, &count, sizeof count);
      at_ += sizeof count;
      const uint64_t element = element_bytes(storage->second, path_);
      RT_CHECK_AS(FormatError, count == storage->second.count && count <= (file_.size() - at_) / element, path_,
                  ": truncated: storage ", printable_name(key), " has fewer than ", storage->second.count, " numbers");
      places_[key] = {at_, count * element};
      at_ += count * element;
    }
    begin_.clear(), begin_.shrink_to_fit();
  }
  void check(const PickledStorage& storage) override {
    const auto place = places_.find(storage.key);
    RT_CHECK_AS(FormatError,
                place != places_.end() && storage.count <= place->second.bytes / element_bytes(storage, path_), path_,
                ": damaged: it has no storage ", printable_name(storage.key), " of ", storage.count, " numbers");
  }
  void read(const PickledStorage& storage, uint64_t begin, void* to, uint64_t bytes) override {
    file_.read(places_.at(storage.key).begin + begin, to, bytes);
  }

 private:
  std::string path_;
  InputFile file_;
  std::string begin_;  // of the file
  uint64_t at_ = 0;
  struct Place {
    uint64_t begin, bytes;
  };
  std::map<std::string, Place> places_;
};

constexpr std::string_view kZip("PK\x03\x04", 4);

}  // namespace

// The first bytes of a file; "" of what is none, such as a pipe.
static std::string beginning_of(const std::string& path) {
  std::error_code ignored;
  std::string out(9, '\0');
  if (!std::filesystem::is_regular_file(path, ignored)) return "";
  std::ifstream(path, std::ios::binary).read(out.data(), std::streamsize(out.size()));
  return out;
}

bool is_pytorch(const std::string& path) {
  const std::string begin = beginning_of(path);
  if (begin.empty() || begin[8] == '{' || path.ends_with(".npz")) return false;  // a safetensors header has {
  return begin.starts_with(kZip) || (begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5);
}

PyTorchFile::PyTorchFile(const std::string& path, const std::string& set) : path_(path) {
  if (beginning_of(path).starts_with(kZip)) {
    auto source = std::make_unique<ZipSource>(path);
    tensors_ = tensors_of(parse_pickle(source->pickle(), path), path, set, header_.beside);
    header_.metadata = source->metadata();
    source_ = std::move(source);
  } else {
    auto source = std::make_unique<LegacySource>(path);
    const Pickle object = source->next();
    tensors_ = tensors_of(object, path, set, header_.beside);
    source->find(storages_of(object, path));
    source_ = std::move(source);
  }
  for (const PickledTensor& t : tensors_) {
    if (t.entry.problem.empty()) source_->check(t.storage);
    header_.tensors.push_back(t.entry);
  }
}

PyTorchFile::~PyTorchFile() = default;

Tensor PyTorchFile::read(size_t i) {
  const PickledTensor& t = tensors_[i];
  RT_CHECK_AS(FormatError, t.entry.problem.empty(), path_, ": tensor '", printable(t.entry.name), "' ",
              t.entry.problem);
  const Shape shape(std::span<const int64_t>(t.entry.shape));
  Tensor out(shape, t.entry.dtype);
  if (out.size() == 0) return out;
  int64_t span = 1;  // of the storage's numbers that the tensor is made of
  Shape strides = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    strides[axis] = shape[axis] > 1 ? int64_t(t.strides[size_t(axis)]) : 1;
    span += (shape[axis] - 1) * strides[axis];
  }
  const size_t element = size_of(t.entry.dtype);
  const Tensor numbers({span}, t.entry.dtype);
  source_->read(t.storage, t.offset * element, View(numbers).data, uint64_t(span) * element);
  check_bools(path_, t.entry.name, numbers);
  copy(out, numbers.window(shape, strides));
  return out;
}

namespace {

// Writes the pickle of {name: tensor}, by protocol 2, as torch.save does.
class StatePickler {
 public:
  std::string pickle(const std::vector<NamedTensor>& tensors) {
    out_ = "\x80\x02}(";
    for (size_t i = 0; i < tensors.size(); ++i) {
      text(tensors[i].name);
      tensor(tensors[i].tensor, std::to_string(i));
    }
    return out_ + "u.";
  }

 private:
  void tensor(const Tensor& x, const std::string& key) {
    global("torch._utils", "_rebuild_tensor_v2");
    out_ += "((";
    text("storage"), global("torch", type_of(x.dtype())), text(key), text("cpu"), number(x.size());
    out_ += "tQ";
    number(0), sizes(x.shape()), sizes(contiguous_strides(x.shape()));
    out_ += '\x89';  // requires_grad: False
    global("collections", "OrderedDict");
    out_ += ")RtR";
  }
  static const char* type_of(DType dtype) {
    constexpr const char* kNames[] = {"BoolStorage", "ByteStorage",     "IntStorage",   "LongStorage",
                                      "HalfStorage", "BFloat16Storage", "FloatStorage", "DoubleStorage"};
    return kNames[size_t(dtype)];
  }
  void global(const std::string& module, const std::string& name) { out_ += "c" + module + "\n" + name + "\n"; }
  void text(const std::string& x) { out_ += 'X', append(uint32_t(x.size())), out_ += x; }
  void number(int64_t x) { out_ += "\x8a\x08", append(x); }
  void sizes(const Shape& shape) {
    out_ += '(';
    for (const int64_t size : shape) number(size);
    out_ += 't';
  }
  template <class T> void append(T x) { out_.append(reinterpret_cast<const char*>(&x), sizeof x); }

  std::string out_;
};

}  // namespace

void write_pytorch(const std::string& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::set<std::string> names;
  for (const NamedTensor& t : tensors)
    RT_CHECK_AS(UsageError, names.insert(t.name).second && t.tensor.defined(), path,
                t.tensor.defined() ? ": two tensors named '" : ": an undefined tensor '", t.name, "'");
  ZipWriter zip(path);
  zip.add("model/data.pkl", StatePickler().pickle(tensors));
  zip.add("model/byteorder", "little");
  zip.add("model/version", "3\n");
  if (!metadata.empty()) zip.add(concat("model/", kMetadata), Json(metadata).text());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor x = contiguous_on_host(tensors[i].tensor);
    zip.add(concat("model/data/", i),
            [&](const ZipWriter::Sink& sink) { sink(View(x).data, size_t(x.size()) * size_of(x.dtype())); });
  }
  zip.commit();
}

}  // namespace ringtape
