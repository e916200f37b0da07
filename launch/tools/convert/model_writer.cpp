#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/convert/model_writer.hpp>
#include <launch/tools/convert/packed_structure.hpp>
#include <launch/tools/convert/round_trip.hpp>
#include <launch/tools/convert/tensor_copy.hpp>
#include <launch/tools/convert/work.hpp>

#include <xxhash.h>

#include <optional>

namespace maniple {

namespace fs = std::filesystem;

namespace {

class Writer {
 public:
  Writer(const ModelFiles& files, const fs::path& to, const PackOptions& options)
      : to_(to), options_(options), packing_(packing_of(files, options.shards)) {
    for (auto& [name, bytes] : packing_.index.files) blobs_.emplace_back(name, &bytes);
    for (auto& [name, tensors] : packing_.index.safetensors) blobs_.emplace_back(name, &tensors.header);
    for (const auto& [name, bytes] : blobs_) sources_.emplace(name, InputFile(files.path(name)));
  }

  void run() {
    begin();
    work_on(blobs_.size() + packing_.tensors.size(), options_.threads,
            [this](size_t number) { copy(number); });
    finish();
  }

  const Packing& packing() const { return packing_; }

 private:
  void begin() {
    remove_left(to_);
    check_room(to_, bytes_to_write());
    index_ = make_structure(part_, packing_, options_.shards, options_.align);
    out_.emplace(part_, RangeFile::How::open);
    out_->lock();
    file_size_ = fs::file_size(part_);
  }

  uint64_t bytes_to_write() const {
    uint64_t bytes = uint64_t{1} << 20;
    for (const auto& [name, tensors] : packing_.index.safetensors) bytes += tensors.size;
    for (const auto& [name, file] : packing_.index.files) bytes += file.size;
    return bytes;
  }

  // The small files and headers come first, then the tensors. Sets the hashes of the piece in the index.
  void copy(size_t number) {
    if (number < blobs_.size()) {
      const auto& [name, bytes] = blobs_[number];
      bytes->hash = copy_bytes(sources_.at(name), 0, bytes->size, &*out_, bytes->offset);
      return;
    }
    const TensorToPack& tensor = packing_.tensors[number - blobs_.size()];
    const TensorInfo& info = tensor.stored.info;
    PackedTensor& packed = packing_.packed(tensor);
    const std::vector<Extent> from = whole_extent(info, 0, tensor.stored.offset),
                              to = extents_of(info, packed, 0, file_size_, tensor.name);
    packed.hashes = copy_tensor(info, {&sources_.at(tensor.file), from}, {&*out_, to}).to;
  }

  void finish() {
    std::string text = to_json(packing_.index);
    require(text.size() <= index_.size, "the index fits into its place");
    text.resize(index_.size, ' ');
    index_.hash = XXH64(text.data(), text.size(), 0);
    out_->write(index_.offset, text);
    out_->write(0, user_block_of(file_size_, index_));
    out_->sync();
    out_.reset();  // older HDF5 libraries lock what they read
    if (options_.verify) check_packed(part_, options_.threads);
    fs::rename(part_, to_);
    sync_directory(to_.parent_path());
  }

  const fs::path& to_;
  const fs::path part_ = part_of(to_);
  const PackOptions& options_;
  Packing packing_;
  std::vector<std::pair<std::string, PackedBytes*>> blobs_;  // small files and headers, by name
  std::map<std::string, InputFile> sources_;
  std::optional<RangeFile> out_;
  PackedBytes index_;
  uint64_t file_size_ = 0;
};

}  // namespace

void pack_model(const ModelFiles& files, const fs::path& to, const PackOptions& options) {
  Writer writer(files, to, options);
  writer.run();
  if (!writer.packing().note.empty())
    fmt::print(stderr,
               "maniple: convert: note: all tensors are stored whole, because this version cannot run the "
               "model: {}\n",
               writer.packing().note);
}

}  // namespace maniple
