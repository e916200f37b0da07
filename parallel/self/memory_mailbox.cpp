#include <kernels/support/check.hpp>
#include <parallel/self/memory_mailbox.hpp>

namespace maniple {

bool MessageQueue::try_push(std::span<const std::byte> bytes) {
  require(bytes.size() <= Mailbox::max_bytes, "a message above the size limit");
  const std::lock_guard lock(mutex_);
  if (!Mailbox::has_room(messages_.size(), bytes_, bytes.size())) return false;
  messages_.emplace_back(bytes.begin(), bytes.end());
  bytes_ += bytes.size();
  return true;
}

std::optional<std::vector<std::byte>> MessageQueue::try_pop() {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) return std::nullopt;
  std::vector<std::byte> message = std::move(messages_.front());
  messages_.pop_front();
  bytes_ -= message.size();
  return message;
}

bool MemoryMailbox::try_send(int to, std::span<const std::byte> bytes) {
  require(0 <= to && static_cast<size_t>(to) < links_.size(),
          "a message to a rank that is not on this channel");
  return links_[to].out->try_push(bytes);
}

std::optional<Message> MemoryMailbox::try_receive() {
  for (size_t tried = 0; tried < links_.size(); ++tried) {
    const size_t peer = next_;
    next_ = (next_ + 1) % links_.size();
    if (auto bytes = links_[peer].in->try_pop()) return Message{static_cast<int>(peer), std::move(*bytes)};
  }
  return std::nullopt;
}

MemoryChannel make_memory_channel(int leaves) {
  MemoryChannel channel;
  std::vector<MemoryMailbox::Link> root;
  for (int i = 0; i < leaves; ++i) {
    const auto down = std::make_shared<MessageQueue>(), up = std::make_shared<MessageQueue>();
    root.push_back({down, up});
    channel.leaves.push_back(std::make_unique<MemoryMailbox>(std::vector<MemoryMailbox::Link>{{up, down}}));
  }
  channel.root = std::make_unique<MemoryMailbox>(std::move(root));
  return channel;
}

}  // namespace maniple
