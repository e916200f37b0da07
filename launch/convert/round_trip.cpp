#include <kernels/support/counted.hpp>
#include <launch/convert/packed_structure.hpp>
#include <launch/convert/round_trip.hpp>
#include <launch/convert/tensor_copy.hpp>
#include <launch/convert/work.hpp>
#include <launch/run_directory/durable_file.hpp>

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
    std::vector<size_t> numbers(pieces_.size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
    work_on(
        numbers, threads_of(threads),
        [&](size_t number) {
          const Piece& piece = pieces_[number];
          const auto to = out.find(piece.file);
          copy(piece, to == out.end() ? nullptr : &to->second, wrong);
          return std::vector<uint64_t>{};
        },
        [](const std::vector<WorkDone>&) {});
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
      if (hashes.from[i] != piece.indexed.extents[i].hash)
        wrong(fmt::format("tensor {}, chunk {}", piece.tensor, i));
  }

  InputFile packed_;
  std::map<std::string, StoredTensors> stored_;  // by file
  std::vector<Piece> pieces_;
};

}  // namespace

void unpack_model(const ModelFiles& files, const fs::path& to, unsigned threads) {
  const Pieces pieces(files);
  uint64_t bytes = 0;
  for (const std::string& name : files.names()) bytes += files.size(name);
  check_room(to, bytes);
  const fs::path part = to.string() + ".part";
  fs::remove_all(part);
  if (std::error_code error; !fs::create_directory(part, error))
    fail(ExitCode::input, "cannot make {}: {}", part.string(), error.message());
  std::map<std::string, RangeFile> out;
  for (const std::string& name : files.names())
    out.emplace(name, RangeFile(part / name, RangeFile::How::create)).first->second.resize(files.size(name));
  pieces.read(threads, out, [&](const std::string& what) { refuse_checksum(files.where(), what); });
  for (const auto& [name, file] : out) file.sync();
  sync_directory(part);
  fs::remove_all(to);
  fs::rename(part, to);
  sync_directory(to.parent_path());
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
  for (std::string& line : differences_of_structure(path, *files.packed(), pieces.stored()))
    wrong.push_back(std::move(line));
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
