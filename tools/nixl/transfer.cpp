#include "transfer.hpp"

#include <algorithm>
#include <cstring>

#include "report.hpp"

namespace hydrant_nixl {

using abi::Status;

namespace {

// The bytes of one run up to which the thread that posts copies it. To wake a worker for so few takes longer.
constexpr std::uint64_t AT_ONCE = 1 << 20;
// The most bytes that one call copies without workers.
constexpr std::size_t PIECE = 512 << 10;

// Copies a run in this thread. Returns a status of Hydrant.
int copy_here(bool is_write, const hydrant_run& run) {
    char* local = static_cast<char*>(run.local);
    for (std::size_t done = 0; done < run.bytes;) {
        const std::size_t piece = std::min(PIECE, run.bytes - done);
        const int status = is_write ? hydrant_remote_write(run.remote, run.offset + done, local + done, piece)
                                    : hydrant_remote_read(run.remote, run.offset + done, local + done, piece);
        if (status != HYDRANT_SUCCESS) return status;
        done += piece;
    }
    return HYDRANT_SUCCESS;
}

bool lies_in(const abi::Descriptor& part, std::uintptr_t address, std::size_t bytes) {
    return part.address >= address && part.address - address <= bytes && part.bytes <= bytes - (part.address - address);
}

// Adds a range to a short list of those in use, and returns its index. Most transfers use few ranges, in long stretches.
template <typename Range>
std::uint32_t index_of(std::vector<std::shared_ptr<Range>>& list,
                       std::unordered_map<const Range*, std::uint32_t>& indexes, const std::shared_ptr<Range>& range) {
    auto [place, is_new] = indexes.try_emplace(range.get(), std::uint32_t(list.size()));
    if (is_new) list.push_back(range);
    return place->second;
}

} // namespace

void ActiveTransfers::add(const Transfer* transfer, hydrant_batch* batch) {
    std::lock_guard guard(lock);
    batches[transfer] = batch;
}

void ActiveTransfers::remove(const Transfer* transfer) {
    std::lock_guard guard(lock);
    batches.erase(transfer);
}

template <typename Which> void ActiveTransfers::cancel(Which which) {
    // A transfer leaves this list before it is freed, and waits for the lock.
    std::lock_guard guard(lock);
    for (auto& [transfer, batch] : batches) {
        if (which(*transfer)) hydrant_batch_cancel(batch);
    }
}

void ActiveTransfers::cancel_uses_of(const OwnRange* range) {
    cancel([range](const Transfer& transfer) { return transfer.uses(range); });
}

void ActiveTransfers::cancel_those_with(const Peer* peer) {
    cancel([peer](const Transfer& transfer) { return transfer.is_with(peer); });
}

void ActiveTransfers::cancel_all() {
    cancel([](const Transfer&) { return true; });
}

Transfer::~Transfer() {
    cancel();
}

bool Transfer::uses(const OwnRange* range) const {
    for (auto& each : own) {
        if (each.get() == range) return true;
    }
    return false;
}

Status Transfer::plan(const RangeTable& table, const abi::RangeList& local, const abi::RangeList& remote) {
    if (local.memory != abi::Memory::Dram || remote.memory != abi::Memory::Dram) {
        return refuse(Status::NotSupported, "only memory of the host (DRAM) can be transferred");
    }
    if (local.items.size() != remote.items.size()) {
        return refuse(Status::Mismatch, "the local and the remote list have different lengths");
    }
    std::unordered_map<const OwnRange*, std::uint32_t> own_indexes;
    std::unordered_map<const PeerRange*, std::uint32_t> peer_indexes;
    const abi::RangeHandle* local_handle = nullptr;
    const abi::RangeHandle* remote_handle = nullptr;
    RangeEntry here, there;
    std::uint32_t there_index = 0;
    if (peer) {
        runs.reserve(local.items.size());
        range_of.reserve(local.items.size());
    }
    for (std::size_t at = 0; at < local.items.size(); at++) {
        const abi::RangeDescriptor& from = local.items[at];
        const abi::RangeDescriptor& to = remote.items[at];
        if (from.at.bytes != to.at.bytes) {
            return refuse(Status::Mismatch, "a local and a remote descriptor have different lengths");
        }
        if (!here.own || from.handle != local_handle) {
            here = table.find(local_handle = from.handle);
            if (!here.own) return refuse(Status::NotFound, "own memory of a transfer is not registered");
            index_of(own, own_indexes, here.own);
        }
        if ((!there.own && !there.of_peer) || to.handle != remote_handle) {
            there = table.find(remote_handle = to.handle);
            if (peer ? !there.of_peer || there.of_peer->peer != peer : !there.own) {
                return refuse(Status::NotFound, "memory of a transfer was not loaded from the metadata of that agent");
            }
            if (peer) there_index = index_of(ranges, peer_indexes, there.of_peer);
            else index_of(own, own_indexes, there.own);
        }
        const auto far = peer ? std::pair(there.of_peer->address, there.of_peer->bytes)
                              : std::pair(there.own->address, there.own->bytes);
        if (!lies_in(from.at, here.own->address, here.own->bytes) || !lies_in(to.at, far.first, far.second)) {
            return refuse(Status::InvalidParameter, "a descriptor of a transfer lies outside its registered memory");
        }
        if (from.at.bytes == 0) continue;
        bytes += from.at.bytes;
        char* mine = reinterpret_cast<char*>(from.at.address);
        if (!peer) {
            char* other = reinterpret_cast<char*>(to.at.address);
            const bool is_write = operation == abi::Operation::Write;
            copies.push_back({is_write ? other : mine, is_write ? mine : other, from.at.bytes});
            continue;
        }
        const std::uint64_t offset = to.at.address - far.first;
        // Adjacent runs become one.
        if (!runs.empty() && range_of.back() == there_index) {
            hydrant_run& before = runs.back();
            if (static_cast<char*>(before.local) + before.bytes == mine && before.offset + before.bytes == offset) {
                before.bytes += from.at.bytes;
                continue;
            }
        }
        runs.push_back({nullptr, offset, mine, from.at.bytes});
        range_of.push_back(there_index);
    }
    return Status::Success;
}

void Transfer::prepare() {
    if (!peer) return;
    std::lock_guard guard(lock);
    resolve();
}

int Transfer::resolve() {
    if (epoch != 0 && epoch == peer->epoch()) return HYDRANT_SUCCESS;
    int status = open_all();
    if (status == HYDRANT_ERROR_FULL || status == HYDRANT_ERROR_HANDLE) {
        // The owner grants so many ranges at a time. Those of other transfers are opened again when they are needed. A
        // handle is useless if another thread did the same meanwhile.
        peer->close_ranges();
        status = open_all();
    }
    return status;
}

int Transfer::open_all() {
    if (const int status = peer->connect()) return status;
    const std::uint64_t before = peer->epoch();
    std::vector<hydrant_remote*> opened;
    if (const int status = peer->open(ranges, opened)) return status;
    for (std::size_t at = 0; at < runs.size(); at++) runs[at].remote = opened[range_of[at]];
    // If the connection has changed meanwhile, the next post opens the ranges again.
    epoch = before;
    return HYDRANT_SUCCESS;
}

Status Transfer::check_own() const {
    for (auto& range : own) {
        if (!range->is_registered.load(std::memory_order_acquire)) {
            return refuse(Status::NotFound, "own memory of a transfer was deregistered");
        }
    }
    return Status::Success;
}

Status Transfer::post(const abi::TransferArguments* arguments) {
    std::lock_guard guard(lock);
    if (batch) return refuse(Status::RepostActive, "the transfer is under way");
    if (const Status status = check_own(); status != Status::Success) return last = status;
    if (!peer) return last = copy_own(arguments);
    std::string packed;
    const std::string* message = nullptr;
    if (arguments && arguments->has_message) {
        packed = pack_message(*context.agent, arguments->message);
        if (packed.size() > HYDRANT_MOST_MESSAGE) {
            return last = refuse(Status::InvalidParameter, "a notification is longer than 256 KiB");
        }
        message = &packed;
    }
    int status = resolve();
    if (status != HYDRANT_SUCCESS) return last = lost_or("a peer's memory could not be opened", status);
    status = start(message);
    if (status == HYDRANT_ERROR_HANDLE) {
        // Another thread has closed the ranges, or has found the connection broken.
        epoch = 0;
        status = resolve();
        if (status == HYDRANT_SUCCESS) status = start(message);
    }
    if (status != HYDRANT_SUCCESS) return last = lost_or("a transfer failed", status);
    if (!batch) return last = Status::Success;
    bool is_over = false;
    hydrant_batch_test(batch, &is_over);
    if (is_over) return last = end(batch);
    context.active->add(this, batch);
    // Memory that was taken back before the batch was in the list is noticed here.
    if (check_own() != Status::Success) hydrant_batch_cancel(batch);
    return last = Status::InProgress;
}

int Transfer::start(const std::string* message) {
    if (runs.empty() && !message) return HYDRANT_SUCCESS;
    if (runs.empty()) return peer->send(*message);
    const bool is_write = operation == abi::Operation::Write;
    if (runs.size() == 1 && bytes <= AT_ONCE) {
        const int status = copy_here(is_write, runs.front());
        return status == HYDRANT_SUCCESS && message ? peer->send(*message) : status;
    }
    hydrant_peer* to = nullptr;
    if (message && !(to = peer->handle())) return HYDRANT_ERROR_HANDLE;
    return hydrant_batch_start(is_write ? HYDRANT_WRITE : HYDRANT_READ, runs.data(), runs.size(), to,
                               message ? message->data() : nullptr, message ? message->size() : 0, 0, &batch);
}

Status Transfer::copy_own(const abi::TransferArguments* arguments) {
    for (const OwnCopy& copy : copies) std::memmove(copy.to, copy.from, copy.bytes);
    if (arguments && arguments->has_message) context.mailbox->add_own(*context.agent, arguments->message);
    return Status::Success;
}

Status Transfer::check() {
    std::lock_guard guard(lock);
    if (!batch) return last;
    bool is_over = false;
    // A program that polls has time, so it copies a part.
    hydrant_batch_help(batch, &is_over);
    if (!is_over) return Status::InProgress;
    context.active->remove(this);
    return last = end(batch);
}

Status Transfer::end(hydrant_batch* over) {
    batch = nullptr;
    const int status = hydrant_batch_wait(over);
    const Status result = status == HYDRANT_SUCCESS ? Status::Success : lost_or("a transfer failed", status);
    hydrant_batch_free(over);
    return result;
}

Status Transfer::lost_or(const char* doing, int status) {
    const Status told = fail(doing, status);
    if (told == Status::RemoteDisconnect) {
        // The next post connects again.
        peer->forget(epoch);
        epoch = 0;
    }
    return told;
}

void Transfer::cancel() {
    std::lock_guard guard(lock);
    if (!batch) return;
    context.active->remove(this);
    hydrant_batch_cancel(batch);
    hydrant_batch_free(batch);
    batch = nullptr;
    last = Status::Canceled;
}

} // namespace hydrant_nixl
