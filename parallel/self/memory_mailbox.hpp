// A channel between threads of one process: rank 0 to itself, or all ranks where they are threads.
#pragma once

#include <parallel/mailbox.hpp>

#include <deque>
#include <mutex>
#include <utility>

namespace maniple {

// Messages in one direction, not received yet. Safe to use from several threads.
class MessageQueue {
 public:
  bool try_push(std::span<const std::byte> bytes);
  std::optional<std::vector<std::byte>> try_pop();

 private:
  std::mutex mutex_;
  std::deque<std::vector<std::byte>> messages_;
  size_t bytes_ = 0;
};

// One end. Peers are ranks 0..n-1 for a root, rank 0 alone for a leaf.
class MemoryMailbox : public Mailbox {
 public:
  struct Link {
    std::shared_ptr<MessageQueue> out;
    std::shared_ptr<MessageQueue> in;
  };
  explicit MemoryMailbox(std::vector<Link> links) : links_(std::move(links)) {}

  bool try_send(int to, std::span<const std::byte> bytes) override;
  std::optional<Message> try_receive() override;
  bool flushed() override { return true; }

 private:
  std::vector<Link> links_;
  size_t next_ = 0;  // the peer to look at first: a busy one must not starve the others
};

struct MemoryChannel {
  std::unique_ptr<Mailbox> root;
  std::vector<std::unique_ptr<Mailbox>> leaves;
};
MemoryChannel make_memory_channel(int leaves);

}  // namespace maniple
