#include <kernels/support/check.hpp>
#include <runtime/control/step_codec.hpp>

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <utility>

namespace maniple {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr uint32_t magic = 0x4c504e4d;  // "MNPL"
constexpr uint8_t version = 7;
constexpr size_t hash_bytes = sizeof(uint64_t);

enum class Kind : uint8_t { plan = 1, result = 2 };

constexpr auto last_command = static_cast<uint8_t>(Command::stop);

uint64_t hash_of(std::span<const std::byte> body) { return XXH64(body.data(), body.size(), 0); }

// Writer and Reader have the same operations on the same fields: one function below defines the wire format
// of each struct for both.
class Writer {
 public:
  explicit Writer(Kind kind) {
    fixed(magic);
    fixed(version);
    fixed(kind);
  }

  template <typename T>
  void fixed(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    message_.insert(message_.end(), bytes, bytes + sizeof(T));
  }

  void command(Command command) { fixed(command); }
  void flag(bool value) { fixed(value); }
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) message_.push_back(static_cast<std::byte>(value | 0x80));
    message_.push_back(static_cast<std::byte>(value));
  }
  void number(uint32_t value) { number(uint64_t{value}); }
  void number(int32_t value) { number(static_cast<uint32_t>(value)); }
  void positive(uint32_t value) { number(value); }
  void flagged(uint32_t value, bool high, bool middle, bool low) {
    number(uint64_t{value} << 3 | uint64_t{high} << 2 | uint64_t{middle} << 1 | uint64_t{low});
  }
  // How many tokens of a query are known: all, or one less or more.
  void known(uint32_t value, uint32_t whole, bool less, bool more) {
    require(uint64_t{value} + uint64_t{less} == uint64_t{whole} + uint64_t{more},
            "of a query only the last token may be unknown, and only one after it known");
  }
  void present(const std::optional<uint32_t>& value) { number(*value); }
  void relative(uint32_t value, uint32_t base) {  // zigzag
    const auto difference = static_cast<int32_t>(value - base);
    number((static_cast<uint32_t>(difference) << 1) ^ static_cast<uint32_t>(difference >> 31));
  }

  template <typename T, typename Each>
  void each(const std::vector<T>& items, size_t /*min_bytes*/, Each&& transfer) {
    number(uint64_t{items.size()});
    for (const T& item : items) transfer(item);
  }

  std::vector<std::byte> finish() {
    message_.resize(message_.size() + hash_bytes);
    if (message_.size() > max_message_bytes)
      fail(ExitCode::internal, "a step message of {} bytes exceeds the limit of {}", message_.size(),
           max_message_bytes);
    write_checksum(message_);
    return std::move(message_);
  }

 private:
  std::vector<std::byte> message_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> message, Kind kind) {
    check(message.size() >= hash_bytes && message.size() <= max_message_bytes, "its size");
    rest_ = message.last(hash_bytes);
    uint64_t hash = 0;
    fixed(hash);
    rest_ = message.first(message.size() - hash_bytes);
    check(hash == hash_of(rest_), "its hash");
    expect(magic, "magic number");
    expect(version, "version");
    expect(kind, "kind");
  }

  template <typename T>
  void fixed(T& value) {
    check(rest_.size() >= sizeof(T), "it ends early");
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
  }

  void command(Command& command) {
    uint8_t value = 0;
    fixed(value);
    check(value <= last_command, "unknown command");
    command = static_cast<Command>(value);
  }

  void flag(bool& value) {
    uint8_t byte = 0;
    fixed(byte);
    check(byte <= 1, "neither yes nor no");
    value = byte != 0;
  }

  void number(uint64_t& value) { value = varint(UINT64_MAX); }
  void number(uint32_t& value) { value = static_cast<uint32_t>(varint(UINT32_MAX)); }
  void positive(uint32_t& value) {
    number(value);
    check(value > 0, "a number is out of range");
  }
  void number(int32_t& value) { value = static_cast<int32_t>(static_cast<uint32_t>(varint(UINT32_MAX))); }
  void flagged(uint32_t& value, bool& high, bool& middle, bool& low) {
    const uint64_t all = varint((uint64_t{1} << 35) - 1);
    value = static_cast<uint32_t>(all >> 3);
    high = (all & 4) != 0;
    middle = (all & 2) != 0;
    low = (all & 1) != 0;
  }
  void known(uint32_t& value, uint32_t whole, bool less, bool more) {
    check(whole >= uint32_t{less} && !(more && (less || whole == UINT32_MAX)),
          "a query of no token lacks one");
    value = whole - uint32_t{less} + uint32_t{more};
  }
  void present(std::optional<uint32_t>& value) { number(value.emplace()); }
  void relative(uint32_t& value, uint32_t base) {
    const auto zigzag = static_cast<uint32_t>(varint(UINT32_MAX));
    value = base + ((zigzag >> 1) ^ (0U - (zigzag & 1)));
  }

  // An item takes at least min_bytes, so a count that the rest cannot hold is refused before
  // anything is allocated.
  template <typename T, typename Each>
  void each(std::vector<T>& items, size_t min_bytes, Each&& transfer) {
    items.resize(varint(rest_.size() / min_bytes));
    for (T& item : items) transfer(item);
  }

  void finish() const { check(rest_.empty(), "bytes are left over"); }

 private:
  static void check(bool holds, const char* what) {
    if (!holds)
      throw Error(ExitCode::fault, fmt::format("a step message is malformed: {}", what),
                  "the network damaged it, or the ranks run different builds",
                  "install one build on every node");
  }

  template <typename T>
  void expect(T expected, const char* what) {
    T value{};
    fixed(value);
    check(value == expected, what);
  }

  uint64_t varint(uint64_t most) {
    uint64_t value = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte >= 0x80; shift += 7) {
      check(shift < 64, "an integer is too long");
      fixed(byte);
      value |= uint64_t{byte & 0x7fU} << shift;
      check(byte != 0 || shift == 0, "an integer is not in its shortest form");
      check(shift < 63 || byte <= 1, "an integer is too large");
    }
    check(value <= most, "a number is out of range");
    return value;
  }

  std::span<const std::byte> rest_;
};

// The wire format of each struct, for both directions. The literal beside each() is the least size
// of an item in bytes.
template <typename Archive>
auto number_in(Archive& archive) {
  return [&archive](auto& value) { archive.number(value); };
}

template <typename Archive, typename Field>
void transfer_field(Archive& archive, Field& field) {
  using T = std::remove_const_t<Field>;
  if constexpr (std::is_same_v<T, bool>)
    archive.flag(field);
  else if constexpr (std::is_floating_point_v<T> || sizeof(T) == 8)
    archive.fixed(field);
  else
    archive.number(field);
}

template <typename Archive, typename Fields>
void transfer_sampling(Archive& archive, Fields& sampling) {
  for_sampling_fields([&](auto, auto&&, auto, auto of) { transfer_field(archive, of(sampling)); });
  archive.each(sampling.stop_token_ids, 1, number_in(archive));
  archive.each(sampling.allowed_token_ids, 1, number_in(archive));
  archive.each(sampling.logit_bias, 5, [&](auto& bias) {
    archive.number(bias.id);
    archive.fixed(bias.bias);
  });
  archive.each(sampling.bad_word_ids, 1, [&](auto& word) { archive.each(word, 1, number_in(archive)); });
}

// Seats mostly ascend by one and sequences go on where they are, so a decode step takes three bytes for each.
template <typename Archive, typename Fields>
void transfer_sequences(Archive& archive, Fields& sequences) {
  Seat next = 0;
  archive.each(sequences, 3, [&](auto& sequence) {
    archive.relative(sequence.seat, next);
    next = sequence.seat + 1;
    archive.number(sequence.query_length);
    bool takes_last = sequence.known < sequence.query_length;
    bool scores = sequence.rows_scored > 0, moved = sequence.past_length.has_value();
    archive.flagged(sequence.rows_sampled, takes_last, scores, moved);
    bool knows_next = sequence.known > sequence.query_length;
    require(scores || !knows_next, "only a score needs a known token after the query");
    if (scores) archive.positive(sequence.rows_scored);
    if (scores) archive.flag(knows_next);
    archive.known(sequence.known, sequence.query_length, takes_last, knows_next);
    if (moved) archive.present(sequence.past_length);
  });
}

template <typename Archive, typename Fields>
void transfer_plan(Archive& archive, Fields& plan) {
  archive.number(plan.step);
  archive.number(plan.replica);
  archive.command(plan.command);
  archive.each(plan.released, 1, number_in(archive));
  archive.each(plan.admissions, 49, [&](auto& admission) {
    archive.number(admission.seat);
    archive.number(admission.cached_length);
    transfer_sampling(archive, admission.sampling);
    archive.each(admission.blocks, 1, number_in(archive));
    archive.each(admission.window_blocks, 1, number_in(archive));
    archive.number(admission.request);
    archive.number(admission.prompt_length);
  });
  for (auto* blocks : {&plan.new_blocks, &plan.new_window_blocks})
    archive.each(*blocks, 2, [&](auto& fresh) {
      archive.number(fresh.seat);
      archive.each(fresh.ids, 1, number_in(archive));
    });
  for (auto* copies : {&plan.copies, &plan.window_copies})
    archive.each(*copies, 2, [&](auto& copy) {
      archive.number(copy.from);
      archive.number(copy.to);
    });
  transfer_sequences(archive, plan.sequences);
  archive.each(plan.known_tokens, 1, number_in(archive));
  archive.fixed(plan.state_hash);
}

template <typename Archive, typename Fields>
void transfer_result(Archive& archive, Fields& result) {
  archive.number(result.step);
  archive.each(result.counts, 1, number_in(archive));
  archive.each(result.tokens, 6, [&](auto& token) {
    archive.number(token.id);
    archive.fixed(token.logprob);
    archive.number(token.alternatives);
  });
  archive.each(result.alternatives, 5, [&](auto& alternative) {
    archive.number(alternative.id);
    archive.fixed(alternative.logprob);
  });
  archive.number(result.times.forward);
  archive.number(result.times.sample);
  archive.number(result.times.communication);
}

}  // namespace

std::vector<std::byte> encode(const StepPlan& plan) {
  Writer writer(Kind::plan);
  transfer_plan(writer, plan);
  return writer.finish();
}

std::vector<std::byte> encode(const StepResult& result) {
  Writer writer(Kind::result);
  transfer_result(writer, result);
  return writer.finish();
}

StepPlan decode_plan(std::span<const std::byte> message) {
  Reader reader(message, Kind::plan);
  StepPlan plan;
  transfer_plan(reader, plan);
  reader.finish();
  return plan;
}

StepResult decode_result(std::span<const std::byte> message) {
  Reader reader(message, Kind::result);
  StepResult result;
  transfer_result(reader, result);
  reader.finish();
  return result;
}

void write_checksum(std::span<std::byte> message) {
  const size_t body = message.size() - hash_bytes;
  const uint64_t hash = hash_of(message.first(body));
  std::memcpy(message.data() + body, &hash, hash_bytes);
}

}  // namespace maniple
