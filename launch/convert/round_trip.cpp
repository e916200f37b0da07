#include <kernels/support/counted.hpp>
#include <launch/convert/packed_structure.hpp>
#include <launch/convert/progress_log.hpp>
#include <launch/convert/round_trip.hpp>
#include <launch/convert/tensor_copy.hpp>
#include <launch/convert/work.hpp>
#include <launch/hdf5/hdf5_process.hpp>
#include <launch/run_directory/durable_file.hpp>

#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// All of a packed model, in pieces: small files, headers, tensors.
class Pieces {
 public:
  explicit Pieces(const ModelFiles& files) : packed_(files.where()) {
    if (!files.packed()) fail(ExitCode::input, "{} is a directory and no packed model", files.where());
    const PackedIndex& index = *files.packed();
    WeightIndex all;  // of all safetensors files, to find overlaps
    for (const auto& [name, bytes] : index.files) pieces_.push_back({name, &bytes});
    for (const auto& [name, tensors] : index.safetensors) {
      pieces_.push_back({name, &tensors.header});
      stored_[name] = read_safetensors_header(files.open(name), tensors.size);
      for (auto& [tensor, indexed] : packed_tensors(files, name, packed_.size())) {
        pieces_.push_back({name, nullptr, tensor, indexed});
        all.tensors[fmt::format("{}: {}", name, tensor)] = std::move(indexed);
      }
    }
    check_apart(all, index, files.where());
  }

  const std::map<std::string, StoredTensors>& stored() const { return stored_; }

  std::vector<size_t> numbers() const {
    std::vector<size_t> numbers(pieces_.size());
    std::iota(numbers.begin(), numbers.end(), size_t{0});
    return numbers;
  }

  // Reads pieces, each once. out: by file, or empty. wrong(what) for each checksum that differs, on any thread. record: as
  // in work_on.
  void read(std::vector<size_t> numbers, unsigned threads, const std::map<std::string, RangeFile>& out,
            const std::function<void(const std::string&)>& wrong,
            const std::function<void(const std::vector<WorkDone>&)>& record) const {
    work_on(
        std::move(numbers), threads_of(threads),
        [&](size_t number) {
          const Piece& piece = pieces_[number];
          const auto to = out.find(piece.file);
          copy(piece, to == out.end() ? nullptr : &to->second, wrong);
          return std::vector<uint64_t>{};
        },
        record);
  }

 private:
  struct Piece {
    std::string file;
    const PackedBytes* bytes = nullptr;  // null: a tensor
    std::string tensor = {};
    IndexedTensor indexed = {};
  };

  void copy(const Piece& piece, const RangeFile* to,
            const std::function<void(const std::string&)>& wrong) const {
    if (piece.bytes) {
      if (copy_bytes(packed_, piece.bytes->offset, piece.bytes->size, to, 0) != piece.bytes->hash)
        wrong(piece.file);
      return;
    }
    const StoredTensor& stored = stored_.at(piece.file).find(piece.tensor)->second;
    const std::vector<Extent> target =
        to ? whole_extent(stored.info, 0, stored.offset) : std::vector<Extent>();
    const CopiedHashes hashes = copy_tensor(stored.info, {&packed_, piece.indexed.extents}, {to, target});
    for (size_t i = 0; i < hashes.from.size(); ++i)
      if (hashes.from[i] != piece.indexed.extents[i].hash->value)
        wrong(fmt::format("tensor {}, chunk {}", piece.tensor, i));
  }

  InputFile packed_;
  std::map<std::string, StoredTensors> stored_;  // by file
  std::vector<Piece> pieces_;
};

class Unpacker {
 public:
  Unpacker(const ModelFiles& files, const fs::path& to) : files_(files), to_(to), pieces_(files) {}

  void run(unsigned threads) {
    if (!go_on()) begin();
    std::vector<size_t> missing = pieces_.numbers();
    std::erase_if(missing, [&](size_t number) { return finished_.contains(number); });
    pieces_.read(
        std::move(missing), threads, out_,
        [&](const std::string& what) { refuse_checksum(files_.where(), what); },
        [&](const std::vector<WorkDone>& done) { record(done); });
    finish();
  }

  // A kill after the last rename leaves the log.
  bool was_done() const {
    std::error_code ignored;
    const std::optional<ProgressLog::Content> left = log_.read();
    return left && !fs::exists(part(), ignored) && left->begun == source() &&
           left->finished.size() == pieces_.numbers().size() && has_all(to_);
  }

 private:
  fs::path part() const { return to_.string() + ".part"; }
  fs::path progress() const { return progress_log_of(to_); }
  // The index has the checksums of all that is in the file.
  std::string source() const {
    const std::string index = to_json(*files_.packed());
    return fmt::format("{:016x}", XXH64(index.data(), index.size(), 0));
  }

  void begin() {
    uint64_t bytes = 0;
    for (const std::string& name : files_.names()) bytes += files_.size(name);
    check_room(to_, bytes);
    for (const std::string& name : files_.names())
      if (fs::exists(part() / name)) lock(RangeFile(part() / name, RangeFile::How::open));
    log_.remove();  // first: it must never be read with new files
    fs::remove_all(part());
    if (std::error_code error; !fs::create_directory(part(), error))
      fail(ExitCode::input, "cannot make {}: {}", part().string(), error.message());
    open(RangeFile::How::create);
    for (const auto& [name, file] : out_) file.resize(files_.size(name));
    sync();
    log_.start(source(), finished_);
  }

  // What an interrupted way back has left. False: nothing that fits.
  bool go_on() {
    std::error_code ignored;
    if (!fs::is_directory(part(), ignored)) return false;
    std::optional<ProgressLog::Content> left = log_.read();
    if (!left) return false;
    if (left->begun != source()) refuse_changed_source(files_.where(), part(), progress());
    if (!has_all(part())) return false;
    finished_ = std::move(left->finished);
    open(RangeFile::How::open);
    log_.start(source(), finished_);
    return true;
  }

  bool has_all(const fs::path& folder) const {
    std::error_code ignored;
    return std::ranges::all_of(files_.names(), [&](const std::string& name) {
      return fs::file_size(folder / name, ignored) == files_.size(name);
    });
  }

  void open(RangeFile::How how) {
    for (const std::string& name : files_.names()) out_.emplace(name, RangeFile(part() / name, how));
    for (const auto& [name, file] : out_) lock(file);
  }

  void lock(const RangeFile& file) const {
    if (!file.lock()) refuse_second_writer(part());
  }

  void sync() const {
    for (const auto& [name, file] : out_) file.sync();
    sync_directory(part());
  }

  // A piece counts as written once it is on the disk.
  void record(const std::vector<WorkDone>& done) {
    sync();
    for (const auto& [number, hashes] : done) log_.append(number, hashes);
    log_.sync();
  }

  // A model in the place of the target is out of the way before it is deleted: a part of one is no model.
  void finish() {
    if (fs::exists(to_)) {
      fs::remove_all(replaced_by(to_));
      fs::rename(to_, replaced_by(to_));
    }
    fs::rename(part(), to_);
    sync_directory(to_.parent_path());
  }

  const ModelFiles& files_;
  const fs::path& to_;
  const Pieces pieces_;
  std::map<std::string, RangeFile> out_;
  FinishedPieces finished_;
  ProgressLog log_{progress()};
};

}  // namespace

void unpack_model(const ModelFiles& files, const fs::path& to, unsigned threads) {
  Unpacker(files, to).run(threads);
}

bool was_unpacked(const ModelFiles& files, const fs::path& to) {
  return ProgressLog(progress_log_of(to)).read() && Unpacker(files, to).was_done();
}

void check_packed(const fs::path& path, unsigned threads) {
  const ModelFiles files(path);
  const Pieces pieces(files);
  std::mutex mutex;
  std::vector<std::string> wrong;
  pieces.read(
      pieces.numbers(), threads, {},
      [&](const std::string& what) {
        const std::lock_guard lock(mutex);
        wrong.push_back(what + ": the checksum differs");
      },
      [](const std::vector<WorkDone>&) {});
  const auto structure = [&] { return differences_of_structure(path, *files.packed(), pieces.stored()); };
  std::ranges::move(in_hdf5_process(path, structure), std::back_inserter(wrong));
  if (wrong.empty()) return;
  for (const std::string& line : wrong)
    if (wrong.size() > 1) fmt::print(stderr, "{}: {}\n", files.where(), line);
  throw Error(ExitCode::input,
              fmt::format("{}: {}", files.where(),
                          wrong.size() == 1
                              ? wrong[0]
                              : fmt::format("{} chunks or files are not as they were written", wrong.size())),
              "a model with other weights gives other text", "run maniple convert again");
}

}  // namespace maniple
