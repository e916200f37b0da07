#include <kernels/support/host_memory.hpp>
#include <runtime/collective_phase.hpp>

#include <optional>
#include <string>

namespace maniple {
namespace {

// code, what, why, remedy; the texts end with a zero byte. Nothing for success.
std::string encode(const std::optional<Error>& error) {
  if (!error) return {};
  std::string text(1, static_cast<char>(error->code()));
  for (const std::string& part : {std::string(error->what()), error->why(), error->remedy()})
    text += part + '\0';
  return text;
}

Error decode(const std::string& bytes) {
  const char* text = bytes.data();
  const std::string what = text + 1;
  const std::string why = text + 1 + what.size() + 1;
  const std::string remedy = text + 1 + what.size() + 1 + why.size() + 1;
  return {static_cast<ExitCode>(static_cast<unsigned char>(text[0])), what, why, remedy};
}

}  // namespace

void collective_phase(World& world, const std::function<void()>& phase) {
  std::optional<Error> mine;
  try {
    phase();
  } catch (const Error& error) {
    mine = error;
  } catch (const std::bad_alloc&) {
    mine = out_of_memory();
  }
  const std::vector<std::string> all = world.all_gather_bytes(encode(mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const Error error = decode(all[rank]);
    if (world.rank() != 0) throw SilentExit(error);
    if (rank == 0) throw CollectiveError(error);
    throw CollectiveError(
        Error(error.code(),
              fmt::format("{} (rank {} on {})", error.what(), rank, world.locations()[rank].host),
              error.why(), error.remedy()),
        static_cast<int>(rank));
  }
}

}  // namespace maniple
