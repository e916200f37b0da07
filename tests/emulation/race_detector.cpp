#include <emulation/race_detector.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace maniple::emulation {

namespace {

constexpr uintptr_t page_bytes = 4096;
constexpr size_t most_races = 4;  // of a message

uint32_t at(const std::vector<uint32_t>& times, size_t id) { return id < times.size() ? times[id] : 0; }
void join(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

// The line of the kernel, where the compiler inlined a primitive into it.
std::string line_of(const void* caller) {
  Dl_info file{};
  if (dladdr(caller, &file) == 0) return fmt::format("{}", caller);
  const std::string offset = fmt::format(
      "{:#x}", reinterpret_cast<uintptr_t>(caller) - reinterpret_cast<uintptr_t>(file.dli_fbase) - 1);
  std::string found;
  if (FILE* const lines =
          popen(fmt::format("addr2line -ise '{}' {} 2>/dev/null", file.dli_fname, offset).c_str(), "r")) {
    std::array<char, 256> text{};
    while ((found.empty() || found.starts_with("primitives.hpp")) &&
           std::fgets(text.data(), text.size(), lines))
      found = text.data();
    pclose(lines);
  }
  found.erase(std::min(found.find_first_of(" \n"), found.size()));
  return found.empty() || found.starts_with("??") ? offset : found;
}

}  // namespace

void RaceDetector::begin_launch(int threads, std::span<const std::byte> stacks) {
  stacks_ = stacks;
  blocks_.clear();
  threads_.resize(static_cast<size_t>(threads));
  pages_.clear();
  published_.clear();
  races_.clear();
  atomic_ = false;
  acting_ = -1;
  launched_ = true;
}

void RaceDetector::begin_block(Grid index, std::span<const std::byte> shared) {
  first_id_ = static_cast<uint32_t>(2 * threads_.size() * blocks_.size());
  blocks_.push_back(index);
  shared_ = shared;
  shared_cells_ = Page(shared.size());
  Thread fresh;
  fresh.known = std::make_shared<Knowledge>();
  std::fill(threads_.begin(), threads_.end(), fresh);
}

void RaceDetector::end_block() {
  const auto waited = [](const Thread& thread) { return thread.last_copied <= thread.arrived; };
  const auto thread = std::find_if_not(threads_.begin(), threads_.end(), waited);
  if (thread != threads_.end())
    races_.insert(fmt::format("a copy of thread {} outlives block ({}, {}, {})", thread - threads_.begin(),
                              blocks_.back().x, blocks_.back().y, blocks_.back().z));
}

void RaceDetector::judge() {
  if (races_.empty()) return;
  std::string text;
  for (const std::string& race : races_) text += race + '\n';
  throw EmulationError(text);
}

// Whether the site orders what comes to it.
bool RaceDetector::counts(const char* kind, std::source_location where) {
  std::string function =
      where.function_name();  // for GCC with types: "void Class<T>::name(int) [with T = int]"
  function.erase(std::min(function.find('('), function.size()));
  if (const size_t before = function.find_last_of(" :"); before != std::string::npos)
    function.erase(0, before + 1);
  Site site{function, kind, where.line()};
  const bool counts = site != ignored_;
  sites_.insert(std::move(site));
  return counts;
}

void RaceDetector::met(int first, int count, std::source_location where) {
  judge();
  const bool whole_block = static_cast<size_t>(count) == threads_.size();
  if (!counts(whole_block ? "barrier" : "warp barrier", where)) return;
  Knowledge known, published, acquired;
  // Neighbours mostly know the same, from where they met last.
  const auto add = [](Knowledge& to, const Known& more, const Known& last) {
    if (!more || more == last) return;
    join(to.here, more->here);
    join(to.earlier, more->earlier);
  };
  const auto begin = threads_.begin() + first, end = begin + count;
  Thread last;
  for (auto thread = begin; thread != end; ++thread) {
    add(known, thread->known, last.known);
    add(published, thread->published, last.published);
    add(acquired, thread->acquired, last.acquired);
    last = *thread;
  }
  known.here.resize(2 * threads_.size());
  for (auto thread = begin; thread != end; ++thread) {
    const auto i = static_cast<size_t>(thread - threads_.begin());
    known.here[i] = thread->time++;
    known.here[threads_.size() + i] = thread->arrived;
  }
  const auto shared = [](Knowledge& knowledge) { return std::make_shared<Knowledge>(std::move(knowledge)); };
  const Known all = shared(known), all_published = shared(published), all_acquired = shared(acquired);
  for (auto thread = begin; thread != end; ++thread) {
    thread->known = all;
    thread->published = all_published;
    thread->acquired = all_acquired;
  }
}

RaceDetector::Knowledge RaceDetector::all_known(size_t thread) const {
  Knowledge known = *threads_[thread].known;
  known.here.resize(2 * threads_.size());
  known.here[thread] = threads_[thread].time;
  known.here[threads_.size() + thread] = threads_[thread].arrived;
  return known;
}

void RaceDetector::fenced(int thread, std::source_location where) {
  if (!counts("fence", where)) return;
  const auto i = static_cast<size_t>(thread);
  Thread& self = threads_[i];
  Knowledge known = all_known(i);
  if (self.acquired) join(known.earlier, self.acquired->earlier);
  self.known = self.published = std::make_shared<Knowledge>(std::move(known));
  ++self.time;
}

void RaceDetector::begin_atomic(const void* place) {
  atomic_ = true;
  if (is_shared(place)) return;
  Thread& self = threads_[static_cast<size_t>(thread_index())];
  Times& published = published_[place];
  Knowledge acquired = self.acquired ? *self.acquired : Knowledge{};
  join(acquired.earlier, published);
  acquired.earlier.resize(std::min<size_t>(acquired.earlier.size(), first_id_));
  self.acquired = std::make_shared<Knowledge>(std::move(acquired));
  if (!self.published) return;
  Times mine = self.published->earlier;
  mine.resize(first_id_);
  mine.insert(mine.end(), self.published->here.begin(), self.published->here.end());
  join(published, mine);
}

void RaceDetector::copies(int thread, const void* to, const void* from, const void* caller) {
  const auto i = static_cast<size_t>(thread);
  Access mine;
  mine.id = first_id_ + static_cast<uint32_t>(threads_.size() + i);
  mine.time = threads_[i].last_copied = threads_[i].groups + 1;
  mine.caller = caller;
  access(i, mine, to, 16, true);
  if (from) access(i, mine, from, 16, false);
}

void RaceDetector::waited(int thread, int pending, std::source_location where) {
  Thread& self = threads_[static_cast<size_t>(thread)];
  if (counts("wait", where) && self.groups > static_cast<Time>(pending))
    self.arrived = std::max(self.arrived, self.groups - static_cast<Time>(pending));
}

bool RaceDetector::precedes(const Access& access, size_t thread) const {
  const Thread& self = threads_[thread];
  if (access.id < first_id_) return access.time <= at(self.known->earlier, access.id);
  const size_t id = access.id - first_id_;
  if (id == thread) return true;
  if (id == threads_.size() + thread) return access.time <= self.arrived;
  return access.time <= at(self.known->here, id);
}

bool RaceDetector::is_shared(const void* place) const {
  return shared_.data() <= place && place < shared_.data() + shared_.size();
}

RaceDetector::Cell& RaceDetector::cell_of(const std::byte* place) {
  if (is_shared(place)) return shared_cells_[static_cast<size_t>(place - shared_.data())];
  const auto address = reinterpret_cast<uintptr_t>(place);
  Page& page = pages_[address / page_bytes];
  if (page.empty()) page = Page(page_bytes);
  return page[address % page_bytes];
}

void RaceDetector::access(const void* place, size_t bytes, bool writes, const void* caller) {
  if (!launched_ || (stacks_.data() <= place && place < stacks_.data() + stacks_.size())) return;
  if (atomic_ && !writes) return;  // the write of the operation stands for it
  const auto thread = static_cast<size_t>(acting_ < 0 ? thread_index() : acting_);
  Access mine;
  mine.id = first_id_ + static_cast<uint32_t>(thread);
  mine.time = threads_[thread].time;
  mine.atomic = atomic_;
  mine.caller = caller;
  access(thread, mine, place, bytes, writes);
}

void RaceDetector::access(size_t thread, const Access& mine, const void* place, size_t bytes, bool writes) {
  const auto* const first = static_cast<const std::byte*>(place);
  const size_t before = races_.size();
  launched_ = false;  // what this calls may be an instrumented instance of the standard library
  for (const std::byte* byte = first; byte < first + bytes && races_.size() == before; ++byte) {
    Cell& cell = cell_of(byte);
    writes ? write(thread, mine, cell, byte) : read(thread, mine, cell, byte);
  }
  launched_ = true;
}

void RaceDetector::read(size_t thread, const Access& mine, Cell& cell, const void* place) {
  if (cell.write.time == 0 && is_shared(place)) found("nothing", mine, "read", mine, place);
  if (cell.write.time > 0 && !precedes(cell.write, thread)) found("write", cell.write, "read", mine, place);
  Access& last = cell.reads ? cell.reads->back() : cell.read;
  if (last.id == mine.id && last.time == mine.time) return;
  if (!cell.reads && (last.time == 0 || precedes(last, thread))) {
    last = mine;
    return;
  }
  if (!cell.reads) cell.reads = std::make_unique<std::vector<Access>>();
  std::vector<Access>& reads = *cell.reads;
  if (reads.size() == reads.capacity()) {  // those that this one follows tell no more
    std::erase_if(reads, [&](const Access& other) { return precedes(other, thread); });
    reads.reserve(2 * reads.size() + 1);
  }
  reads.push_back(mine);
}

void RaceDetector::write(size_t thread, const Access& mine, Cell& cell, const void* place) {
  if (cell.write.time > 0 && !(cell.write.atomic && mine.atomic) && !precedes(cell.write, thread))
    found("write", cell.write, "write", mine, place);
  if (cell.read.time > 0 && !precedes(cell.read, thread)) found("read", cell.read, "write", mine, place);
  if (cell.reads) {
    for (const Access& read : *cell.reads)
      if (!precedes(read, thread)) found("read", read, "write", mine, place);
    cell.reads.reset();
  }
  cell.read = {};
  cell.write = mine;
}

std::string RaceDetector::name_of(const Access& access) const {
  const size_t ids = 2 * threads_.size(), id = access.id % ids;
  const Grid block = blocks_[access.id / ids];
  return fmt::format("{}thread {} of block ({}, {}, {}) at {}", id < threads_.size() ? "" : "a copy of ",
                     id % threads_.size(), block.x, block.y, block.z,
                     names_lines_ ? line_of(access.caller) : "a place");
}

void RaceDetector::found(const char* earlier, const Access& before, const char* later, const Access& now,
                         const void* place) {
  if (races_.size() == most_races) return;
  const std::string where =
      is_shared(place)
          ? fmt::format("byte {} of shared memory", static_cast<const std::byte*>(place) - shared_.data())
          : fmt::format("global memory at {}", place);
  if (earlier == std::string_view("nothing"))
    races_.insert(fmt::format("nobody wrote {}: read by {}", where, name_of(now)));
  else
    races_.insert(fmt::format("a race for {}: {} by {}, then {} by {}, and nothing orders them", where,
                              earlier, name_of(before), later, name_of(now)));
}

}  // namespace maniple::emulation

// --- what the compiler calls ---

namespace {

void observe(const void* place, size_t bytes, bool writes, const void* caller) {
  if (auto* const detector = static_cast<maniple::emulation::RaceDetector*>(maniple::emulation::observer))
    detector->access(place, bytes, writes, caller);
}

}  // namespace

extern "C" {
void __tsan_init();
void __tsan_func_entry(void*);
void __tsan_func_exit();
void __tsan_vptr_read(void**);
void __tsan_vptr_update(void**, void*);
void __tsan_read_range(void* place, size_t bytes);
void __tsan_write_range(void* place, size_t bytes);
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* place, size_t bytes) {
  observe(place, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* place, size_t bytes) {
  observe(place, bytes, true, __builtin_return_address(0));
}
}

// Each width has four functions.
#define MANIPLE_ACCESS(name, bytes, writes)   \
  extern "C" void __tsan_##name(void* place); \
  extern "C" void __tsan_##name(void* place) { observe(place, bytes, writes, __builtin_return_address(0)); }
#define MANIPLE_WIDTH(bytes)                          \
  MANIPLE_ACCESS(read##bytes, bytes, false)           \
  MANIPLE_ACCESS(write##bytes, bytes, true)           \
  MANIPLE_ACCESS(unaligned_read##bytes, bytes, false) \
  MANIPLE_ACCESS(unaligned_write##bytes, bytes, true)
MANIPLE_WIDTH(1)
MANIPLE_WIDTH(2)
MANIPLE_WIDTH(4)
MANIPLE_WIDTH(8)
MANIPLE_WIDTH(16)
