#include <parallel/staging_transport.hpp>

#include <utility>

namespace maniple {

void StagingTransport::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  size_t needed = 0, used = 0;
  for (const Outgoing& message : outgoing) needed += message.bytes.size();
  for (const Incoming& message : incoming) needed += message.bytes.size();
  if (host_.size() < needed) host_.resize(needed);
  const auto place = [&](size_t bytes) {
    return std::span(host_).subspan(std::exchange(used, used + bytes), bytes);
  };

  std::vector<Outgoing> from_host;
  for (const Outgoing& message : outgoing) {
    const std::span<std::byte> staged = place(message.bytes.size());
    if (!staged.empty()) device_.download(staged.data(), message.bytes.data(), staged.size());
    from_host.push_back({message.to, staged});
  }
  std::vector<Incoming> to_host;
  for (const Incoming& message : incoming) to_host.push_back({message.from, place(message.bytes.size())});
  transport_->exchange(from_host, to_host);
  for (size_t i = 0; i < incoming.size(); ++i)
    if (!incoming[i].bytes.empty())
      device_.upload(incoming[i].bytes.data(), to_host[i].bytes.data(), to_host[i].bytes.size());
  device_.synchronize();
}

}  // namespace maniple
