#include <launch/options/job_options.hpp>
#include <launch/options/usages.hpp>

#include <bit>

namespace maniple {

CommandLine parse_convert(std::span<const std::string> args) {
  ConvertOptions options;
  std::vector<std::string> words;
  Grammar grammar("convert", convert_usage);
  grammar.take_words(words);
  grammar.group("Convert");
  grammar.add("check", on(options.check),
              "read one packed model and compare all its checksums; writes nothing");
  grammar.add("shards", number(options.shards, 1, 1024).by_default("8"),
              "parts of a tensor that tensor ranks share: their number divides by that of the tensor ranks");
  grammar.add("align", bytes(options.align).by_default("4K"), "parts begin at multiples of it");
  grammar.add("threads", number(options.threads, 1U, 1024U),
              "that copy [default: of the machine, at most 8]");
  grammar.add("verify", on(options.verify), "read the packed model again before it gets its name");
  grammar.add("overwrite", on(options.overwrite.asked), "the target may exist: it is replaced at the end");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (words.size() != (options.check ? 1 : 2))
    refuse(options.check ? "--check takes one packed model" : "convert takes a model and its target",
           options.check ? "maniple convert --check model.h5"
                         : "maniple convert DIR model.h5, or maniple convert model.h5 DIR");
  if (!std::has_single_bit(options.align) || options.align > size_t{64} << 20)
    refuse(fmt::format("--align ({}) must be a power of two up to 64M", options.align), "--align 4K");
  options.from = words[0];
  if (!options.check) options.to = words[1];
  if (options.to.filename().empty()) options.to = options.to.parent_path();  // back/
  return options;
}

}  // namespace maniple
