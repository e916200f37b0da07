#include <launch/record/recorded_run.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/analysis/gnuplot.hpp>
#include <launch/tools/analysis/plots.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace maniple {
namespace {

struct Plot {
  const char *name, *table;
  const char*
      commands;  // {0}: seconds of a bar, {1}: end of the last whole bar, {2}: each so many rows, {3}: each so many labels
};

// Column names are those of the record. gnuplot bins and adds up: smooth frequency adds the values of a bar, unique takes
// their mean, cnormal makes shares. NaN values are left out.
constexpr std::array<Plot, 5> plots = {{
    {"throughput", "steps", R"(set xlabel 'time (s)'
set ylabel 'tokens/s'
set yrange [0:*]
bar(t) = t < {1} ? {0} * (floor(t / {0}) + 0.5) : NaN
rate(t, tokens) = t < {1} ? tokens / {0} : NaN
plot 'steps.csv' using (bar(column('answered_s'))):(rate(column('answered_s'), column('sampled'))) \
       smooth frequency with lines lw 2 title 'output', \
     '' using (bar(column('answered_s'))):(rate(column('answered_s'), column('prompt_tokens'))) \
       smooth frequency with lines lw 2 title 'prompts'
)"},
    {"steps", "steps", R"(set xlabel 'tokens in the step'
set ylabel 'time of a step (ms)'
set yrange [0:*]
each(value) = value / column('weight')
plot 'steps.csv' every {2} using (each(column('tokens'))):(1e3 * each(column('answered_s') - column('planned_s'))) \
       with points pt 7 ps 0.4 title 'plan to answer', \
     '' every {2} using (each(column('tokens'))):(1e3 * each(column('forward_s') + column('sample_s'))) \
       with points pt 7 ps 0.4 title 'computing'
)"},
    {"latency", "requests", R"(set xlabel 'time (ms)'
set ylabel 'share of the requests'
set logscale x
set yrange [0:1]
ms(t) = t > 0 ? 1e3 * t : NaN
one(t) = t > 0 ? 1 : NaN
plot 'requests.csv' every {2} using (ms(column('ttft_s'))):(one(column('ttft_s'))) smooth cnormal with steps lw 2 title 'first token (TTFT)', \
     '' every {2} using (ms(column('tpot_s'))):(one(column('tpot_s'))) smooth cnormal with steps lw 2 title 'each further (TPOT)', \
     '' every {2} using (ms(column('e2e_s'))):(one(column('e2e_s'))) smooth cnormal with steps lw 2 title 'end to end'
)"},
    {"kv_cache", "steps", R"(set xlabel 'time (s)'
set ylabel 'KV blocks of a replica, mean'
set yrange [0:*]
bar(t) = {0} * (floor(t / {0}) + 0.5)
plot 'steps.csv' using (bar(column('answered_s'))):(column('held_blocks') + column('free_blocks')) \
       smooth unique with lines lw 2 title 'all', \
     '' using (bar(column('answered_s'))):(column('held_blocks')) smooth unique with lines lw 2 title 'held'
)"},
    {"ranks", "ranks", R"(set xlabel 'rank'
set ylabel 'time (s)'
set yrange [0:*]
set style data histograms
set style histogram rowstacked
set style fill solid 0.8 noborder
set boxwidth 0.8
label(rank) = rank % {3} == 0 ? sprintf('%d', rank) : ''
plot 'ranks.csv' using (column('prefill_s') + column('decode_s') - column('comm_s')):xticlabels(label(int(column('rank')))) \
       title 'computing', \
     '' using (column('comm_s')) title 'communication', '' using (column('idle_s')) title 'idle'
)"},
}};

// A bar of 1, 2 or 5 times a power of ten seconds, about a hundred of them.
double bar_seconds(double all) {
  const double least = std::max(all, 1e-3) / 100, power = std::pow(10, std::floor(std::log10(least)));
  for (const double step : {1, 2, 5})
    if (step * power >= least) return step * power;
  return 10 * power;
}

std::string script_of(const Plot& plot, const Record& record, const std::string& title) {
  constexpr size_t most_points = 4000, most_labels = 16;
  const double seconds = last_row_s(record), bar = bar_seconds(seconds);
  const size_t rows = record.find(plot.table)->size();
  return script_head(plot.name, gnuplot_text(title)) + "set key above\nset offsets 0, 0, graph 0.05, 0\n" +
         fmt::format(fmt::runtime(plot.commands), bar, std::floor(seconds / bar) * bar,
                     rows / most_points + 1, rows / most_labels + 1);
}

}  // namespace

std::vector<std::string> write_plot_scripts(const Record& record, const std::filesystem::path& folder,
                                            const std::string& title) {
  std::vector<std::string> names;
  for (const Plot& plot : plots) {
    const StoredTable* const table = record.find(plot.table);
    if (!table || table->size() == 0) continue;
    replace_file(folder / (std::string(plot.name) + ".gp"), script_of(plot, record, title));
    names.emplace_back(plot.name);
  }
  return names;
}

}  // namespace maniple
