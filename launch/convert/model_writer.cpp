#include <kernels/support/counted.hpp>
#include <launch/convert/model_writer.hpp>
#include <launch/convert/packed_structure.hpp>
#include <launch/convert/progress_log.hpp>
#include <launch/convert/round_trip.hpp>
#include <launch/convert/tensor_copy.hpp>
#include <launch/convert/work.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <sys/stat.h>
#include <xxhash.h>

#include <array>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The model's hash and what tells its weights apart without reading them.
std::string source_of(const ModelFiles& files, uint64_t hash) {
  for (const std::string& name : files.names()) {
    struct stat status {};
    if (::stat(files.path(name).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const std::array<int64_t, 3> facts{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
    hash = XXH64(facts.data(), sizeof facts, XXH64(name.data(), name.size(), hash));
  }
  return fmt::format("{:016x}", hash);
}

class Writer {
 public:
  Writer(const ModelFiles& files, const fs::path& to, const std::string& source, const PackOptions& options)
      : files_(files),
        to_(to),
        source_(source),
        options_(options),
        packing_(packing_of(files, options.shards)) {
    for (auto& [name, bytes] : packing_.index.files) blobs_.emplace_back(name, &bytes);
    for (auto& [name, tensors] : packing_.index.safetensors) blobs_.emplace_back(name, &tensors.header);
    for (const auto& [name, bytes] : blobs_) sources_.emplace(name, InputFile(files.path(name)));
  }

  void run() {
    if (!go_on()) begin();
    std::vector<size_t> missing;
    for (size_t number = 0; number < pieces(); ++number)
      if (!hashes_.contains(number)) missing.push_back(number);
    work_on(
        missing, threads_of(options_.threads), [this](size_t number) { return copy(number); },
        [this](const std::vector<WorkDone>& done) { record(done); });
    finish();
  }

  const Packing& packing() const { return packing_; }

  // A kill after the last rename leaves the log, which then has every hash of the target's index.
  bool was_done() {
    std::error_code ignored;
    if (fs::exists(part(), ignored) || !read_left(to_) || hashes_.size() != pieces()) return false;
    set_hashes();
    const ModelFiles target(to_);
    return target.packed() && to_json(*target.packed()) == to_json(packing_.index);
  }

 private:
  fs::path part() const { return to_.string() + ".part"; }
  fs::path progress() const { return progress_log_of(to_); }

  size_t pieces() const { return blobs_.size() + packing_.tensors.size(); }

  void lock() const {
    if (!out_->lock()) refuse_second_writer(part());
  }

  void begin() {
    check_room(to_, bytes_to_write());
    if (fs::exists(part())) {
      out_.emplace(part(), RangeFile::How::open);
      lock();
    }
    log_.remove();  // first: it must never be read with a new file
    fs::remove(part());
    index_ = make_structure(part(), packing_, options_.shards, options_.align);
    out_.emplace(part(), RangeFile::How::open);
    lock();
    file_size_ = fs::file_size(part());
    out_->sync();
    start_log();
  }

  uint64_t bytes_to_write() const {
    uint64_t bytes = uint64_t{1} << 20;
    for (const auto& [name, tensors] : packing_.index.safetensors) bytes += tensors.size;
    for (const auto& [name, file] : packing_.index.files) bytes += file.size;
    return bytes;
  }

  // What an interrupted conversion has left. False: nothing that fits.
  bool go_on() {
    if (!read_left(part())) return false;
    out_.emplace(part(), RangeFile::How::open);
    lock();
    const uint64_t there = out_->allocated_bytes(), all = bytes_to_write();
    check_room(to_, all - std::min(there, all));
    start_log();
    return true;
  }

  // What the log says of a file. False: nothing that fits. Fails if it is of another source and the file is no target yet.
  bool read_left(const fs::path& file) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return false;
    std::optional<ProgressLog::Content> left = log_.read();
    if (!left) return false;
    const json start = json::parse(left->begun);
    if (start.at("source") != source_) {
      if (file == to_) return false;
      refuse_changed_source(files_.where(), part(), progress());
    }
    if (start.at("layout") != layout() || fs::file_size(file) != start.at("file_size")) return false;
    take_index(
        packed_index_from(start.at("index").get<std::string>(), progress().string(), start.at("file_size")));
    index_ = {start.at("index_offset"), start.at("index_bytes"), 0};
    file_size_ = start.at("file_size");
    hashes_ = std::move(left->finished);
    return true;
  }

  // In place: blobs_ points into it.
  void take_index(const PackedIndex& index) {
    for (auto& [name, bytes] : packing_.index.files) bytes = index.files.at(name);
    for (auto& [name, tensors] : packing_.index.safetensors) {
      tensors.header = index.safetensors.at(name).header;
      tensors.tensors = index.safetensors.at(name).tensors;
    }
  }

  std::string layout() const { return fmt::format("{} shards, align {}", options_.shards, options_.align); }

  void start_log() {
    log_.start(json{{"source", source_},
                    {"layout", layout()},
                    {"file_size", file_size_},
                    {"index", to_json(packing_.index)},
                    {"index_offset", index_.offset},
                    {"index_bytes", index_.size}}
                   .dump(),
               hashes_);
  }

  // A piece counts as written once it is on the disk.
  void record(const std::vector<WorkDone>& done) {
    out_->sync();
    for (const auto& [number, hashes] : done) {
      log_.append(number, hashes);
      hashes_[number] = hashes;
    }
    log_.sync();
  }

  // The small files and headers come first, then the tensors.
  std::vector<uint64_t> copy(size_t number) const {
    if (number < blobs_.size()) {
      const auto& [name, bytes] = blobs_[number];
      return {copy_bytes(sources_.at(name), 0, bytes->size, &*out_, bytes->offset)};
    }
    const TensorToPack& tensor = packing_.tensors[number - blobs_.size()];
    const TensorInfo& info = tensor.stored.info;
    const std::vector<Extent> from = whole_extent(info, 0, tensor.stored.offset),
                              to = extents_of(info, packed(tensor), 0, file_size_, tensor.name);
    return copy_tensor(info, {&sources_.at(tensor.file), from}, {&*out_, to}).to;
  }

  const PackedTensor& packed(const TensorToPack& tensor) const {
    return packing_.index.safetensors.at(tensor.file).tensors.find(tensor.name)->second;
  }

  void set_hashes() {
    for (auto& [number, hashes] : hashes_)
      if (number < blobs_.size())
        blobs_[number].second->hash = hashes.at(0);
      else
        packing_.packed(packing_.tensors.at(number - blobs_.size())).hashes = hashes;
  }

  void finish() {
    set_hashes();
    std::string text = to_json(packing_.index);
    require(text.size() <= index_.size, "the index fits into its place");
    text.resize(index_.size, ' ');
    index_.hash = XXH64(text.data(), text.size(), 0);
    out_->write(index_.offset, text);
    out_->write(0, user_block_of(file_size_, index_));
    out_->sync();
    out_.reset();  // older HDF5 libraries lock what they read
    if (options_.verify) check_packed(part(), options_.threads);
    fs::rename(part(), to_);
    sync_directory(to_.parent_path());
  }

  const ModelFiles& files_;
  const fs::path& to_;
  const std::string& source_;
  const PackOptions& options_;
  Packing packing_;
  std::vector<std::pair<std::string, PackedBytes*>> blobs_;  // small files and headers, by name
  std::map<std::string, InputFile> sources_;
  FinishedPieces hashes_;  // of what is written
  std::optional<RangeFile> out_;
  ProgressLog log_{progress()};
  PackedBytes index_;
  uint64_t file_size_ = 0;
};

}  // namespace

bool was_packed(const ModelFiles& files, const fs::path& to, uint64_t source, const PackOptions& options) {
  const std::string identity = source_of(files, source);
  return ProgressLog(progress_log_of(to)).read() && Writer(files, to, identity, options).was_done();
}

void pack_model(const ModelFiles& files, const fs::path& to, uint64_t source, const PackOptions& options) {
  const std::string identity = source_of(files, source);
  Writer writer(files, to, identity, options);
  writer.run();
  if (!writer.packing().note.empty())
    fmt::print(stderr,
               "maniple: convert: note: all tensors are stored whole, because this version cannot run the "
               "model: {}\n",
               writer.packing().note);
}

}  // namespace maniple
