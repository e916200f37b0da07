// Which blocks of a pool are free, which sequences hold, and which wait for plans in flight.
#pragma once

#include <kernels/support/check.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace maniple {

class BlockPool {
 public:
  explicit BlockPool(uint32_t count) : blocks_(count) {
    for (int32_t id = 0; id < static_cast<int32_t>(count); ++id) at(id).where = free_.insert(free_.end(), id);
  }

  size_t size() const { return blocks_.size(); }
  size_t num_free() const { return free_.size(); }
  size_t num_pending() const { return pending_.size(); }
  size_t num_held() const { return held_.size(); }
  bool is_free(int32_t id) const { return at(id).state == State::free; }
  int32_t next() const { return free_.front(); }  // the free block that is reused first

  void hold(int32_t id) {
    if (at(id).holders++ == 0) move(id, State::held);
  }
  // One holder less. Without any other the block is pending until the plan of this step is answered.
  void drop(int32_t id, uint64_t last_step_in_flight) {
    Block& block = at(id);
    require(block.holders > 0, "a block is released that nobody holds");
    if (--block.holders > 0) return;
    block.free_after_step = last_step_in_flight;
    move(id, State::pending);
  }
  // All plans up to `step` are answered. A block that is_found by others goes to the back of the free ones, in the order of their release.
  template <typename IsFound>
  void answered(uint64_t step, const IsFound& is_found) {
    while (!pending_.empty() && at(pending_.front()).free_after_step <= step)
      move(pending_.front(), State::free, !is_found(pending_.front()));
  }
  void reuse_first(int32_t id) { move(id, State::free, true); }  // of the free blocks

 private:
  friend struct Inspector;  // of the tests
  enum class State : uint8_t { free, held, pending };
  struct Block {
    uint32_t holders = 0;
    State state = State::free;
    std::list<int32_t>::iterator where;  // in the list of its state
    uint64_t free_after_step = 0;        // while pending
  };

  Block& at(int32_t id) { return blocks_[static_cast<size_t>(id)]; }
  const Block& at(int32_t id) const { return blocks_[static_cast<size_t>(id)]; }
  std::list<int32_t>& list(State state) {
    return state == State::free ? free_ : state == State::held ? held_ : pending_;
  }
  void move(int32_t id, State state, bool to_front = false) {
    Block& block = at(id);
    std::list<int32_t>& to = list(state);
    to.splice(to_front ? to.begin() : to.end(), list(block.state), block.where);
    block.state = state;
  }

  std::vector<Block> blocks_;
  std::list<int32_t> free_, held_, pending_;  // together all blocks; free: reused from the front
};

}  // namespace maniple
