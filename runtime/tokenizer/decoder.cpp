#include <runtime/tokenizer/decoder.hpp>

#include <charconv>
#include <optional>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/byte_alphabet.hpp>
#include <utility>

namespace maniple {
namespace {

class Output final : public TokenSink {
 public:
  explicit Output(std::string& output) : output_(output) {}
  void text(std::string_view part) override { output_ += part; }
  void end_token() override {}
  void finish() override {}

 private:
  std::string& output_;
};

class Stage : public TokenSink {
 public:
  explicit Stage(TokenSink& next) : next_(next) {}
  void text(std::string_view part) override { next_.text(part); }
  void end_token() override { next_.end_token(); }
  void finish() override { next_.finish(); }

 protected:
  void pass_on(std::string_view token) {
    next_.text(token);
    next_.end_token();
  }
  TokenSink& next_;
};

// A stage that must see a token whole.
class WholeTokenStage : public Stage {
 public:
  using Stage::Stage;
  void text(std::string_view part) final { token_ += part; }
  void end_token() final {
    whole_token(token_);
    token_.clear();
  }

 protected:
  virtual void whole_token(const std::string& token) = 0;

 private:
  std::string token_;
};

class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void whole_token(const std::string& token) override {
    next_.text(characters_.push(alphabet_.to_bytes(token)));
  }
  void finish() override {
    pass_on(characters_.finish());
    next_.finish();
  }

 private:
  ByteAlphabet alphabet_;
  LossyUtf8 characters_;
};

std::optional<unsigned char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned char byte = 0;
  const char* end = token.data() + 5;
  const char* begin = token.data() + (token[3] == '+' ? 4 : 3);  // as Rust's from_str_radix
  const auto [stopped, error] = std::from_chars(begin, end, byte, 16);
  return error == std::errc() && stopped == end ? std::optional(byte) : std::nullopt;
}

class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void whole_token(const std::string& token) override {
    if (const auto byte = byte_of_token(token)) return run_.push_back(static_cast<char>(*byte));
    end_run();
    pass_on(token);
  }
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  void end_run() {
    const auto run = std::exchange(run_, {});
    if (run.empty()) return;
    if (first_invalid_utf8(run) == std::string::npos) return pass_on(run);
    for (size_t i = 0; i < run.size(); ++i) pass_on(replacement_character);
  }

  std::string run_;
};

class FuseStage final : public Stage {
 public:
  using Stage::Stage;
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }
};

class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(TokenSink& next, Replace replace) : WholeTokenStage(next), replace_(std::move(replace)) {}
  void whole_token(const std::string& token) override { pass_on(replace_.apply(token)); }

 private:
  Replace replace_;
};

class StripStage final : public Stage {
 public:
  StripStage(TokenSink& next, std::string character, size_t start, size_t stop)
      : Stage(next), character_(std::move(character)), start_(start), stop_(stop) {}

  void text(std::string_view part) override {
    for (size_t position = 0; position < part.size();) {
      const auto character = character_at(part, position);
      position += character.size();
      take(character);
    }
  }
  void end_token() override {
    removed_ = held_ = 0;
    is_at_front_ = true;
    next_.end_token();
  }

 private:
  void take(std::string_view character) {
    const bool is_stripped = character == character_;
    is_at_front_ = is_at_front_ && is_stripped && removed_ < start_;
    if (is_at_front_) {
      ++removed_;
    } else if (is_stripped && held_ < stop_) {
      ++held_;
    } else {
      release(is_stripped ? 0 : std::exchange(held_, 0));
      next_.text(character);
    }
  }
  void release(size_t count) {
    for (; count > 0; --count) next_.text(character_);
  }

  std::string character_;
  size_t start_, stop_;
  size_t removed_ = 0, held_ = 0;  // of this token: removed at its front; held back, maybe its end
  bool is_at_front_ = true;
};

class MetaspaceStage final : public Stage {
 public:
  MetaspaceStage(TokenSink& next, std::string replacement, bool is_prepended)
      : Stage(next), replacement_(std::move(replacement)), space_(is_prepended ? "" : " ") {}

  void text(std::string_view part) override {
    for (auto found = part.find(replacement_); found != std::string_view::npos;
         found = part.find(replacement_)) {
      next_.text(part.substr(0, found));
      next_.text(space_);
      part.remove_prefix(found + replacement_.size());
    }
    next_.text(part);
  }
  void end_token() override {
    space_ = " ";
    next_.end_token();
  }

 private:
  std::string replacement_;
  std::string_view space_;  // replaces the replacement character in this token
};

class SpaceBetweenStage final : public Stage {
 public:
  using Stage::Stage;
  void text(std::string_view part) override {
    next_.text(std::exchange(separator_, ""));
    next_.text(part);
  }
  void end_token() override { separator_ = " "; }

 private:
  std::string_view separator_;
};

template <typename StageType, typename... Args>
DecoderStage opener(Args... args) {
  return [=](TokenSink& next) { return std::make_unique<StageType>(next, args...); };
}

}  // namespace

DecoderStage byte_level_decoder() { return opener<ByteLevelStage>(); }
DecoderStage byte_fallback_decoder() { return opener<ByteFallbackStage>(); }
DecoderStage fuse_decoder() { return opener<FuseStage>(); }
DecoderStage replace_decoder(Replace replace) { return opener<ReplaceStage>(std::move(replace)); }
DecoderStage strip_decoder(std::string character, size_t start, size_t stop) {
  return opener<StripStage>(std::move(character), start, stop);
}
DecoderStage metaspace_decoder(std::string replacement, bool is_prepended) {
  return opener<MetaspaceStage>(std::move(replacement), is_prepended);
}
DecoderStage space_between_decoder() { return opener<SpaceBetweenStage>(); }

DecoderStream::DecoderStream(const std::vector<DecoderStage>& stages)
    : output_(std::make_unique<std::string>()) {
  sinks_.push_back(std::make_unique<Output>(*output_));
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
    sinks_.push_back((*stage)(*sinks_.back()));
}

std::string DecoderStream::push(std::string_view token) {
  sinks_.back()->text(token);
  sinks_.back()->end_token();
  return std::exchange(*output_, {});
}

std::string DecoderStream::finish() {
  sinks_.back()->finish();
  return std::exchange(*output_, {});
}

}  // namespace maniple
