#include <launch/options/same_options.hpp>
#include <runtime/collective_phase.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parallel/self/self_world.hpp>
#include <support/thread_world.hpp>

namespace maniple {

namespace {

using testing::HasSubstr;

// Rank 0's message about these ranks; empty: they continue.
std::string verdict(const std::vector<GivenOptions>& given,
                    const std::vector<std::optional<Error>>& mistakes = {}) {
  std::string text;
  run_ranks(static_cast<int>(given.size()), [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    try {
      refuse_different_options(world, given[rank], mistakes.empty() ? std::nullopt : mistakes[rank]);
    } catch (const CollectiveError& error) {
      text = fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    } catch (const SilentExit&) {
    }
  });
  return text;
}

const GivenOptions usual{{"command", "generate"}, {"dtype", "bf16"}, {"tp", "2"}};

GivenOptions with(const std::string& name, const std::string& value) {
  GivenOptions options = usual;
  options[name] = value;
  return options;
}

TEST(SameOptions, GoOn) {
  EXPECT_EQ(verdict({usual, usual, usual}), "");
  EXPECT_EQ(verdict({usual}), "");
}

TEST(SameOptions, ButThreadsMayDiffer) {
  EXPECT_EQ(verdict({with("threads", "1"), with("threads", "4"), usual}), "");
  EXPECT_EQ(verdict({usual, with("quiet", "")}), "");
}

TEST(DifferentOptions, AreNamedWithRankAndHost) {
  EXPECT_EQ(verdict({usual, usual, with("dtype", "fp32")}),
            fmt::format("65: this rank was given --dtype fp32, but rank 0 --dtype bf16 (rank 2 on {})",
                        host_name()));
  EXPECT_THAT(verdict({with("eager", ""), usual}), HasSubstr("given no --eager, but rank 0 --eager (rank 1"));
  EXPECT_THAT(verdict({usual, with("max-tokens", "5")}),
              HasSubstr("given --max-tokens 5, but rank 0 no --max-tokens"));
}

TEST(DifferentCommands, AreNamedAlone) {
  GivenOptions doctor = with("command", "doctor");
  doctor.erase("dtype");
  EXPECT_THAT(verdict({usual, doctor}),
              HasSubstr("given the command doctor, but rank 0 the command generate (rank 1"));
}

TEST(MistakenRank, IsToldWhateverTheOthersWereGiven) {
  const Error mistake(ExitCode::usage, "unknown option --tpp");
  EXPECT_THAT(verdict({usual, usual}, {std::nullopt, mistake}),
              HasSubstr("64: unknown option --tpp (rank 1"));
  EXPECT_EQ(verdict({usual, with("tp", "1")}, {mistake, std::nullopt}), "64: unknown option --tpp");
  EXPECT_EQ(verdict({{}, {}}, {mistake, mistake}), "64: unknown option --tpp");
}

}  // namespace

}  // namespace maniple
