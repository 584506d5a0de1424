#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/device.h"

namespace ringtape {

// One allocation on one device. It is returned to its owner, usually the device's arena, when its last tensor is
// destroyed.
class Storage {
 public:
  Storage(size_t bytes, Device device);
  // Memory of another owner, which is kept alive; null: none until provide().
  Storage(std::shared_ptr<void> memory, size_t bytes, Device device)
      : data_(memory.get()), memory_(std::move(memory)), bytes_(bytes), device_(device) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // From now on, `arriving` is called before bytes [begin, end) are used through a tensor, because others still write
  // some of them: it returns when these are there, and whether all are; then it is called no more. Empty: nothing is to
  // come. By one thread at a time.
  using Arriving = std::function<bool(size_t begin, size_t end)>;
  void set_arriving(Arriving arriving) { arriving_ = std::move(arriving); }
  bool arriving() const { return bool(arriving_); }
  void await(size_t begin, size_t end) {
    if (arriving_ && arriving_(begin, end)) arriving_ = {};
  }

  // Gives it the memory of another storage, which is kept alive; null: none. For a storage of another owner's memory.
  void provide(const std::shared_ptr<Storage>& memory) {
    data_ = memory ? memory->data() : nullptr;
    memory_ = memory;
  }

  // Counts in-place writes, so that backward can detect that a saved value has changed.
  uint32_t version() const { return version_; }
  const char* last_writer() const { return last_writer_; }  // name of the operation that wrote the latest version
  void written_by(const char* op) {
    ++version_;
    last_writer_ = op;
  }

 private:
  void (*deallocate_)(void* data, size_t bytes, int index) noexcept = nullptr;  // null: memory_ does it
  void* data_;
  std::shared_ptr<void> memory_;
  size_t bytes_;
  Device device_;
  uint32_t version_ = 0;
  const char* last_writer_ = "";
  Arriving arriving_;
};

}  // namespace ringtape
