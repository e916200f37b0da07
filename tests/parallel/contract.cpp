#include "contract.hpp"

#include <gtest/gtest.h>
#include <support/distant_device.hpp>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace maniple {

namespace {

// --- a group of all ranks over the reference backend, and tensors as vectors ---

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct Group {
  explicit Group(World& world) : communicator(world.make_group(all_ranks(world), backend.ops)) {}
  Communicator* operator->() { return communicator.get(); }

  ReferenceBackend backend;
  std::unique_ptr<Communicator> communicator;
};

TensorView view(std::vector<float>& values, const Shape& shape) {
  return view_of(values.data(), DType::fp32, shape);
}
TensorView view(std::vector<float>& values) { return view(values, {static_cast<int64_t>(values.size())}); }

std::vector<float> counted(size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Values of mixed sign and of magnitudes from 2^-14 to 2^13: another order of summation gives other bits.
std::vector<float> order_matters(size_t count, int rank) {
  std::minstd_rand random(1000 * static_cast<unsigned>(count % 1000) + static_cast<unsigned>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    const float mantissa = static_cast<float>(random()) * 0x1p-30f - 1.0f;  // in [-1, 1)
    value = std::ldexp(mantissa, static_cast<int>(random() / 8 % 28) - 14);
  }
  return values;
}

// The contract written as recursion: the left subtree is the largest power of two below the number of values.
float tree_sum(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  size_t left = 1;
  while (2 * left < values.size()) left *= 2;
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

std::vector<float> tree_sum_of_ranks(size_t count, int ranks) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(order_matters(count, rank));
  std::vector<float> sums(count), column(ranks);
  for (size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < ranks; ++rank) column[rank] = inputs[rank][i];
    sums[i] = tree_sum(column);
  }
  return sums;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// --- collectives ---

void all_reduce_sums_integers(World& world) {
  Group group(world);
  std::vector<float> x(8);
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(i * (world.rank() + 1));
  group->all_reduce(view(x, {2, 4}));
  const int factor = world.size() * (world.size() + 1) / 2;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(x[i], static_cast<float>(i * factor));
}

void all_reduce_keeps_the_order_of_the_tree(World& world) {
  Group group(world);
  for (const size_t count :
       {size_t{1}, size_t{7}, size_t{1000}, size_t{4096}, size_t{4097}, size_t{100003}}) {
    std::vector<float> x = order_matters(count, world.rank());
    group->all_reduce(view(x));
    EXPECT_TRUE(same_bits(x, tree_sum_of_ranks(count, world.size()))) << count << " elements";
  }
}

void all_reduce_of_bf16_rounds_at_each_addition(World& world) {
  Group group(world);
  for (const size_t count : {size_t{33}, size_t{20011}}) {
    std::vector<BFloat16> x(count);
    std::vector<std::vector<float>> sums;
    for (int rank = 0; rank < world.size(); ++rank) {
      sums.push_back(order_matters(count, rank));
      for (float& value : sums.back()) value = static_cast<float>(BFloat16(value));
    }
    for (size_t i = 0; i < count; ++i) x[i] = BFloat16(sums[world.rank()][i]);
    for (int distance = 1; distance < world.size(); distance *= 2)
      for (int rank = 0; rank + distance < world.size(); rank += 2 * distance)
        for (size_t i = 0; i < count; ++i)
          sums[rank][i] = static_cast<float>(BFloat16(sums[rank][i] + sums[rank + distance][i]));
    group->all_reduce(view_of(x.data(), DType::bf16, {static_cast<int64_t>(count)}));
    size_t different = 0;
    for (size_t i = 0; i < count; ++i) different += static_cast<float>(x[i]) != sums[0][i];
    EXPECT_EQ(different, 0u) << count << " elements";
  }
}

void a_lagging_rank_changes_nothing(World& world) {
  Group group(world);
  for (int lagging = 0; lagging < world.size(); ++lagging) {
    if (world.rank() == lagging) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<float> x = order_matters(500, world.rank());
    group->all_reduce(view(x));
    EXPECT_TRUE(same_bits(x, tree_sum_of_ranks(500, world.size())));
  }
}

void all_gather_stacks_tensors_by_rank(World& world) {
  Group group(world);
  std::vector<float> in = counted(24, static_cast<float>(1000 * world.rank())), out(24 * world.size());
  group->all_gather(view(in, {2, 3, 4}), view(out, {world.size(), 2, 3, 4}));
  for (int rank = 0; rank < world.size(); ++rank)
    for (int i = 0; i < 24; ++i) EXPECT_EQ(out[24 * rank + i], static_cast<float>(1000 * rank + i));
}

void all_gather_takes_its_input_where_it_will_be(World& world) {
  Group group(world);
  std::vector<float> out(6 * world.size(), -1.0f);
  for (int i = 0; i < 6; ++i) out[6 * world.rank() + i] = static_cast<float>(100 * world.rank() + i);
  const TensorView all = view(out, {world.size(), 6});
  group->all_gather(all.rows(world.rank(), 1).reshaped({6}), all);
  for (int rank = 0; rank < world.size(); ++rank)
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out[6 * rank + i], static_cast<float>(100 * rank + i));
}

// Ranks have 0, 3, 1, 4, 2, 0, ... rows.
std::vector<int64_t> uneven_rows(int size) {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < size; ++rank) rows.push_back((3 * rank) % 5);
  return rows;
}

void all_gatherv_joins_uneven_rows(World& world) {
  Group group(world);
  const std::vector<int64_t> rows = uneven_rows(world.size());
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<float> in = counted(3 * rows[world.rank()], static_cast<float>(100 * world.rank())),
                     out(3 * total), expected;
  for (int rank = 0; rank < world.size(); ++rank)
    for (int i = 0; i < 3 * rows[rank]; ++i) expected.push_back(static_cast<float>(100 * rank + i));
  group->all_gatherv(view(in, {rows[world.rank()], 3}), view(out, {total, 3}), rows);
  EXPECT_EQ(out, expected);
}

void reduce_scatterv_gives_each_rank_its_part(World& world) {
  Group group(world);
  const size_t count = 50 * world.size();
  std::vector<float> in = order_matters(count, world.rank()), out(50);
  const std::vector<int64_t> rows(world.size(), 10);
  group->reduce_scatterv(view(in, {10 * world.size(), 5}), view(out, {10, 5}), rows);
  const std::vector<float> sums = tree_sum_of_ranks(count, world.size());
  EXPECT_TRUE(same_bits(out, {sums.begin() + 50 * world.rank(), sums.begin() + 50 * (world.rank() + 1)}));
  EXPECT_TRUE(same_bits(in, order_matters(count, world.rank()))) << "the input was written to";
}

void reduce_scatterv_gives_uneven_parts(World& world) {
  Group group(world);
  const std::vector<int64_t> rows = uneven_rows(world.size());
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t begin = std::accumulate(rows.begin(), rows.begin() + world.rank(), int64_t{0});
  std::vector<float> in = order_matters(7 * total, world.rank()), out(7 * rows[world.rank()]);
  group->reduce_scatterv(view(in, {total, 7}), view(out, {rows[world.rank()], 7}), rows);
  const std::vector<float> sums = tree_sum_of_ranks(7 * total, world.size());
  EXPECT_TRUE(same_bits(out, {sums.begin() + 7 * begin, sums.begin() + 7 * (begin + rows[world.rank()])}));
}

void all_to_all_gives_each_rank_its_row_of_every_rank(World& world) {
  Group group(world);
  for (const int64_t width : {1, 7, 50001}) {
    const auto row = [&](int from, int to) {
      return order_matters(static_cast<size_t>(width), 100 * from + to);
    };
    std::vector<float> in, expected, out(static_cast<size_t>(world.size() * width), -1.0f);
    for (int peer = 0; peer < world.size(); ++peer) {
      const std::vector<float> mine = row(world.rank(), peer), theirs = row(peer, world.rank());
      in.insert(in.end(), mine.begin(), mine.end());
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    group->all_to_all(view(in, {world.size(), width}), view(out, {world.size(), width}));
    EXPECT_TRUE(same_bits(out, expected)) << width << " elements";
    std::vector<float> x{1.0f};
    group->all_reduce(view(x));  // still in step
    EXPECT_EQ(x[0], static_cast<float>(world.size()));
  }
}

void broadcast_copies_the_root(World& world) {
  Group group(world);
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{700001}}) {  // the last one in several pieces
    for (int root = 0; root < world.size(); ++root) {
      std::vector<float> x = order_matters(count, world.rank());
      group->broadcast(view(x), root);
      EXPECT_TRUE(same_bits(x, order_matters(count, root))) << count << " elements from " << root;
    }
  }
}

void send_and_receive_pass_tensors_around_a_ring(World& world) {
  if (world.size() == 1) return;  // no other rank
  Group group(world);
  const int next = (world.rank() + 1) % world.size(),
            previous = (world.rank() + world.size() - 1) % world.size();
  for (const size_t count : {size_t{3}, size_t{300000}}) {
    std::vector<float> mine = order_matters(count, world.rank()), theirs(count);
    if (world.rank() == 0) group->send(view(mine), next);
    group->receive(view(theirs), previous);
    if (world.rank() != 0) group->send(view(mine), next);
    EXPECT_TRUE(same_bits(theirs, order_matters(count, previous)));
  }
}

void nobody_sends_to_itself(World& world) {
  Group group(world);
  std::vector<float> x(3);
  EXPECT_THROW(group->send(view(x), world.rank()), Error);
  EXPECT_THROW(group->receive(view(x), world.rank()), Error);
}

void empty_tensors_pass(World& world) {
  Group group(world);
  std::vector<float> none;
  const std::vector<int64_t> no_rows(world.size(), 0);
  group->all_reduce(view(none, {0, 4}));
  group->all_gather(view(none, {0, 4}), view(none, {world.size(), 0, 4}));
  group->all_gatherv(view(none, {0, 4}), view(none, {0, 4}), no_rows);
  group->reduce_scatterv(view(none, {0, 4}), view(none, {0, 4}), no_rows);
  group->all_to_all(view(none, {world.size(), 0}), view(none, {world.size(), 0}));
  group->broadcast(view(none, {0, 4}), 0);
  std::vector<float> x{1.0f};
  group->all_reduce(view(x));  // still in step
  EXPECT_EQ(x[0], static_cast<float>(world.size()));
}

void wrong_shapes_are_bugs(World& world) {
  Group group(world);
  std::vector<float> x(12 * world.size() + 1);
  const std::vector<int64_t> too_many(world.size() + 1, 1), others(world.size(), 5);
  EXPECT_THROW(group->all_gather(view(x, {4}), view(x, {world.size(), 3})), Error);
  EXPECT_THROW(group->all_gatherv(view(x, {1, 2}), view(x, {world.size() + 1, 2}), too_many), Error);
  EXPECT_THROW(group->all_gatherv(view(x, {1, 2}), view(x, {world.size(), 2}), others), Error);
  EXPECT_THROW(group->all_to_all(view(x, {world.size(), 2}), view(x, {world.size(), 3})), Error);
  const std::vector<int64_t> parts(world.size(), 12);
  EXPECT_THROW(group->reduce_scatterv(view(x, {12 * world.size() + 1}), view(x, {12}), parts), Error);
}

void a_barrier_holds_until_the_last_rank(World& world) {
  Group group(world);
  const auto start = std::chrono::steady_clock::now();
  if (world.rank() == world.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
  world.barrier();
  // A sleep may be longer, never shorter; the ranks started together up to the group's making.
  if (world.rank() == world.size() - 1) {
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(60));
  }
  std::vector<float> arrived(world.size(), 0.0f);
  arrived[world.rank()] = 1.0f;
  group->all_reduce(view(arrived));
  EXPECT_EQ(arrived, std::vector<float>(world.size(), 1.0f));
}

void groups_of_one_axis_work_side_by_side(World& world) {
  ReferenceBackend backend;
  std::vector<int> mine;  // even ranks descending, odd ranks ascending
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2)
    mine.insert(world.rank() % 2 ? mine.end() : mine.begin(), rank);
  const auto group = world.make_group(mine, backend.ops);
  const auto everyone = world.make_group(all_ranks(world), backend.ops);  // overlaps the first
  ASSERT_EQ(group->size(), static_cast<int>(mine.size()));
  ASSERT_EQ(mine[group->rank()], world.rank());

  std::vector<float> in{static_cast<float>(world.rank())}, out(mine.size()), sum{1.0f};
  group->all_gather(view(in), view(out, {group->size(), 1}));
  for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(mine[i]));
  everyone->all_reduce(view(sum));
  EXPECT_EQ(sum[0], static_cast<float>(world.size()));
}

void two_groups_of_the_same_ranks_do_not_mix(World& world) {
  Group first(world), second(world);
  std::vector<float> a{1.0f}, b{10.0f};
  second->all_reduce(view(b));
  first->all_reduce(view(a));
  EXPECT_EQ(a[0], static_cast<float>(world.size()));
  EXPECT_EQ(b[0], static_cast<float>(10 * world.size()));
}

void memory_that_the_host_cannot_reach_is_staged(World& world) {
  DistantDevice device;
  DistantOps ops(device);
  const auto group = world.make_group(all_ranks(world), ops);
  for (const int64_t count : {int64_t{7}, int64_t{50021}}) {
    std::vector<float> host = order_matters(count, world.rank());
    Tensor x(device, DType::fp32, {count}), stacked(device, DType::fp32, {world.size(), count});
    device.upload(x.view().data, view(host).data, view(host).bytes());
    group->all_reduce(x);
    group->all_gather(x, stacked);
    group->broadcast(x, world.size() - 1);
    const std::vector<float> expected = tree_sum_of_ranks(count, world.size());
    device.download(view(host).data, stacked.view().rows(world.size() - 1, 1).data, view(host).bytes());
    EXPECT_TRUE(same_bits(host, expected));
  }
}

// --- start-up agreement ---

std::vector<std::byte> text(const std::string& characters) {
  const auto* data = reinterpret_cast<const std::byte*>(characters.data());
  return {data, data + characters.size()};
}

// Small messages, and those that a transport may move without its own buffers.
void a_message_of_another_size_stays_out_of_memory(World& world) {
  if (world.size() < 2) return;
  for (const size_t sent : {size_t{64}, size_t{9000}, size_t{3} << 20}) {
    for (const size_t expected : {sent / 2, sent / 1000 + 1, sent * 2}) {
      const std::vector<std::byte> message(sent, std::byte{7});
      std::vector<std::byte> memory(expected + sent, std::byte{1});
      const Outgoing outgoing{0, message};
      const Incoming incoming{1, std::span(memory).first(expected)};
      if (world.rank() == 1) world.transport().exchange({&outgoing, 1}, {});
      if (world.rank() == 0) {
        EXPECT_THROW(world.transport().exchange({}, {&incoming, 1}), Error);
      }
      for (size_t i = expected; i < memory.size(); ++i) ASSERT_EQ(memory[i], std::byte{1}) << i;
    }
  }
  world.barrier();
}

void messages_of_one_exchange_keep_their_order(World& world) {
  if (world.size() < 2) return;
  constexpr size_t count = 200;
  std::vector<std::vector<std::byte>> parts;
  for (size_t i = 0; i < count; ++i)
    parts.emplace_back(i % 3 == 0 ? 20000 : 8, static_cast<std::byte>(world.rank() == 1 ? i : 0));
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::vector<std::byte>& part : parts) {
    if (world.rank() == 1) outgoing.push_back({0, part});
    if (world.rank() == 0) incoming.push_back({1, part});
  }
  world.transport().exchange(outgoing, incoming);
  for (size_t i = 0; world.rank() == 0 && i < count; ++i)
    EXPECT_EQ(parts[i], std::vector(parts[i].size(), static_cast<std::byte>(i)));
}

void bytes_of_every_rank_are_gathered(World& world) {
  const auto word = [](int rank) {
    return std::string(static_cast<size_t>(1000) * rank, static_cast<char>('a' + rank));
  };
  const auto all = world.all_gather_bytes(word(world.rank()));
  ASSERT_EQ(all.size(), static_cast<size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_EQ(all[rank], word(rank));
}

void bytes_of_the_root_are_broadcast(World& world) {
  for (int root = 0; root < world.size(); ++root) {
    std::string bytes = world.rank() == root ? "from " + std::to_string(root) : "something longer than that";
    world.broadcast_bytes(bytes, root);
    EXPECT_EQ(bytes, "from " + std::to_string(root));
  }
  world.barrier();
}

void every_rank_has_a_place(World& world) {
  ASSERT_EQ(world.locations().size(), static_cast<size_t>(world.size()));
  const RankLocation& mine = world.locations()[world.rank()];
  EXPECT_FALSE(mine.host.empty());
  EXPECT_LT(mine.local_rank, mine.local_size);
  EXPECT_EQ(world.locations()[0].node, 0);
  int peers = 0;
  for (const RankLocation& location : world.locations()) peers += location.node == mine.node;
  EXPECT_EQ(peers, mine.local_size);
  EXPECT_FALSE(world.description().empty());
}

// --- channels ---

Message wait_for_message(Mailbox& mailbox) {
  Backoff backoff(Backoff::Spin::no);
  for (;;) {
    if (std::optional<Message> message = mailbox.try_receive()) return std::move(*message);
    backoff.pause();
  }
}

void send_all(Mailbox& mailbox, int to, std::span<const std::byte> bytes) {
  Backoff backoff(Backoff::Spin::no);
  while (!mailbox.try_send(to, bytes)) backoff.pause();
}

void wait_until_flushed(Mailbox& mailbox) {
  Backoff backoff(Backoff::Spin::no);
  while (!mailbox.flushed()) backoff.pause();
}

// Runs the leaf of this rank, and on rank 0 the root in a thread of its own.
void run_channel(World& world, const std::function<void(Mailbox&)>& root,
                 const std::function<void(Mailbox&)>& leaf) {
  Channel channel = world.make_channel();
  EXPECT_EQ(channel.root != nullptr, world.rank() == 0);
  std::thread coordinator;
  if (channel.root) coordinator = std::thread([&] { root(*channel.root); });
  leaf(*channel.leaf);
  if (coordinator.joinable()) coordinator.join();
}

void messages_keep_their_order_and_sender(World& world) {
  constexpr int count = 500;
  const int size = world.size();
  const auto root = [&](Mailbox& mailbox) {
    std::vector<int> next(size, 0);
    int received = 0;
    const auto receive_one = [&] {
      const std::optional<Message> message = mailbox.try_receive();
      if (!message) return std::this_thread::yield();
      EXPECT_EQ(message->bytes, text(fmt::format("{} from {}", next[message->from]++, message->from)));
      ++received;
    };
    for (int i = 0; i < count; ++i)
      for (int to = 0; to < size; ++to)
        while (!mailbox.try_send(to, text(fmt::format("{} for {}", i, to)))) receive_one();
    while (received < count * size) receive_one();
  };
  const auto leaf = [&](Mailbox& mailbox) {
    for (int i = 0; i < count; ++i) {
      const Message message = wait_for_message(mailbox);
      EXPECT_EQ(message.from, 0);
      EXPECT_EQ(message.bytes, text(fmt::format("{} for {}", i, world.rank())));
      send_all(mailbox, 0, text(fmt::format("{} from {}", i, world.rank())));
    }
    wait_until_flushed(mailbox);
  };
  run_channel(world, root, leaf);
}

void big_and_empty_messages_arrive(World& world) {
  const auto big = [](int rank) {
    std::vector<std::byte> bytes(5'000'001);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + rank);
    return bytes;
  };
  const auto root = [&](Mailbox& mailbox) {
    for (int to = 0; to < world.size(); ++to) {
      send_all(mailbox, to, {});
      send_all(mailbox, to, big(to));
    }
    for (int i = 0; i < world.size(); ++i) {
      const Message message = wait_for_message(mailbox);
      EXPECT_TRUE(message.bytes == big(message.from + 100));
    }
    wait_until_flushed(mailbox);
  };
  const auto leaf = [&](Mailbox& mailbox) {
    EXPECT_TRUE(wait_for_message(mailbox).bytes.empty());
    EXPECT_TRUE(wait_for_message(mailbox).bytes == big(world.rank()));
    send_all(mailbox, 0, big(world.rank() + 100));
    wait_until_flushed(mailbox);
  };
  run_channel(world, root, leaf);
}

// A receiver that does not read costs the sender memory: try_send refuses, and no accepted message is lost.
void a_sender_is_told_to_wait(World& world) {
  Channel channel = world.make_channel();
  const std::vector<std::byte> bytes(20'000);  // too many for MPI to buffer by itself
  int accepted = 0;
  if (channel.root) {
    while (accepted < 1000 && channel.root->try_send(world.size() - 1, bytes)) ++accepted;
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, 1000);
  }
  world.barrier();
  std::string number = std::to_string(accepted);
  world.broadcast_bytes(number, 0);
  accepted = std::stoi(number);
  if (world.rank() == world.size() - 1)
    for (int received = 0; received < accepted; ++received) wait_for_message(*channel.leaf);
  if (channel.root) wait_until_flushed(*channel.root);
}

void two_channels_do_not_mix(World& world) {
  Channel first = world.make_channel(), second = world.make_channel();
  send_all(*second.leaf, 0, text("second"));
  send_all(*first.leaf, 0, text("first"));
  if (world.rank() == 0) {
    for (int i = 0; i < world.size(); ++i) EXPECT_EQ(wait_for_message(*first.root).bytes, text("first"));
    for (int i = 0; i < world.size(); ++i) EXPECT_EQ(wait_for_message(*second.root).bytes, text("second"));
    EXPECT_FALSE(first.root->try_receive());
  }
  wait_until_flushed(*first.leaf);
  wait_until_flushed(*second.leaf);
}

void nobody_sends_above_the_size_limit(World& world) {
  Channel channel = world.make_channel();
  const std::vector<std::byte> bytes(Mailbox::max_bytes + 1);
  EXPECT_THROW(channel.leaf->try_send(0, bytes), Error);
  if (channel.root) {
    EXPECT_THROW(channel.root->try_send(world.size() - 1, bytes), Error);
  }
}

}  // namespace

#define MANIPLE_CASE(function) \
  ContractCase { #function, function }

const std::vector<ContractCase>& contract_cases() {
  static const std::vector<ContractCase> cases{
      MANIPLE_CASE(all_reduce_sums_integers),
      MANIPLE_CASE(all_reduce_keeps_the_order_of_the_tree),
      MANIPLE_CASE(all_reduce_of_bf16_rounds_at_each_addition),
      MANIPLE_CASE(a_lagging_rank_changes_nothing),
      MANIPLE_CASE(all_gather_stacks_tensors_by_rank),
      MANIPLE_CASE(all_gather_takes_its_input_where_it_will_be),
      MANIPLE_CASE(all_gatherv_joins_uneven_rows),
      MANIPLE_CASE(reduce_scatterv_gives_each_rank_its_part),
      MANIPLE_CASE(reduce_scatterv_gives_uneven_parts),
      MANIPLE_CASE(all_to_all_gives_each_rank_its_row_of_every_rank),
      MANIPLE_CASE(broadcast_copies_the_root),
      MANIPLE_CASE(send_and_receive_pass_tensors_around_a_ring),
      MANIPLE_CASE(nobody_sends_to_itself),
      MANIPLE_CASE(empty_tensors_pass),
      MANIPLE_CASE(wrong_shapes_are_bugs),
      MANIPLE_CASE(a_barrier_holds_until_the_last_rank),
      MANIPLE_CASE(groups_of_one_axis_work_side_by_side),
      MANIPLE_CASE(two_groups_of_the_same_ranks_do_not_mix),
      MANIPLE_CASE(memory_that_the_host_cannot_reach_is_staged),
      MANIPLE_CASE(a_message_of_another_size_stays_out_of_memory),
      MANIPLE_CASE(messages_of_one_exchange_keep_their_order),
      MANIPLE_CASE(bytes_of_every_rank_are_gathered),
      MANIPLE_CASE(bytes_of_the_root_are_broadcast),
      MANIPLE_CASE(every_rank_has_a_place),
      MANIPLE_CASE(messages_keep_their_order_and_sender),
      MANIPLE_CASE(big_and_empty_messages_arrive),
      MANIPLE_CASE(a_sender_is_told_to_wait),
      MANIPLE_CASE(two_channels_do_not_mix),
      MANIPLE_CASE(nobody_sends_above_the_size_limit),
  };
  return cases;
}

}  // namespace maniple
