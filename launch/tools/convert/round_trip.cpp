#include <kernels/support/counted.hpp>
#include <launch/hdf5/hdf5_process.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/convert/packed_structure.hpp>
#include <launch/tools/convert/round_trip.hpp>
#include <launch/tools/convert/tensor_copy.hpp>
#include <launch/tools/convert/work.hpp>

#include <algorithm>
#include <iterator>
#include <mutex>

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

  // Reads each piece once. out: by file, or empty. wrong(what) for each checksum that differs, on any thread.
  void read(unsigned threads, const std::map<std::string, RangeFile>& out,
            const std::function<void(const std::string&)>& wrong) const {
    work_on(pieces_.size(), threads, [&](size_t number) {
      const Piece& piece = pieces_[number];
      const auto to = out.find(piece.file);
      copy(piece, to == out.end() ? nullptr : &to->second, wrong);
    });
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
    begin();
    pieces_.read(threads, out_, [&](const std::string& what) { refuse_checksum(files_.where(), what); });
    finish();
  }

 private:
  void begin() {
    remove_left(to_);
    uint64_t bytes = 0;
    for (const std::string& name : files_.names()) bytes += files_.size(name);
    check_room(to_, bytes);
    if (std::error_code error; !fs::create_directory(part_, error))
      fail(ExitCode::input, "cannot make {}: {}", part_.string(), error.message());
    for (const std::string& name : files_.names()) {
      fs::create_directories((part_ / name).parent_path());
      const RangeFile& file =
          out_.emplace(name, RangeFile(part_ / name, RangeFile::How::create)).first->second;
      file.lock();
      file.resize(files_.size(name));
    }
  }

  // A model in the place of the target is out of the way before it is deleted: a part of one is no model.
  void finish() {
    for (const auto& [name, file] : out_) file.sync();
    sync_directory(part_);
    const fs::path replaced = part_.string() + ".replaced";
    if (fs::exists(to_)) {
      fs::remove_all(replaced);
      fs::rename(to_, replaced);
    }
    fs::rename(part_, to_);
    sync_directory(to_.parent_path());
    fs::remove_all(replaced);
  }

  const ModelFiles& files_;
  const fs::path& to_;
  const fs::path part_ = part_of(to_);
  const Pieces pieces_;
  std::map<std::string, RangeFile> out_;
};

}  // namespace

void unpack_model(const ModelFiles& files, const fs::path& to, unsigned threads) {
  Unpacker(files, to).run(threads);
}

void check_packed(const fs::path& path, unsigned threads) {
  const ModelFiles files(path);
  const Pieces pieces(files);
  std::mutex mutex;
  std::vector<std::string> wrong;
  pieces.read(threads, {}, [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    wrong.push_back(what + ": the checksum differs");
  });
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
