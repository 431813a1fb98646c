#include "ranges.hpp"

namespace hydrant_nixl {

Peer::~Peer() {
    // The ranges are gone, as each holds its peer.
    if (hydrant_peer* old = handle()) hydrant_peer_drop(old);
}

int Peer::connect() {
    std::lock_guard guard(lock);
    return connect_locked();
}

int Peer::connect_locked() {
    if (handle()) return HYDRANT_SUCCESS;
    hydrant_peer* made = nullptr;
    const int status = hydrant_connect(endpoint, address.data(), address.size(), &made);
    if (status != HYDRANT_SUCCESS) return status;
    peer.store(made, std::memory_order_release);
    current.store(++last_epoch, std::memory_order_release);
    return HYDRANT_SUCCESS;
}

int Peer::open(const std::vector<std::shared_ptr<PeerRange>>& ranges, std::vector<hydrant_remote*>& remotes) {
    std::lock_guard guard(lock);
    if (const int status = connect_locked()) return status;
    remotes.assign(ranges.size(), nullptr);
    std::vector<std::size_t> missing;
    std::vector<const void*> descriptors;
    std::vector<std::size_t> lengths;
    for (std::size_t at = 0; at < ranges.size(); at++) {
        PeerRange* range = ranges[at].get();
        if (auto found = opened.find(range); found != opened.end()) {
            remotes[at] = found->second;
        } else if (range->bytes > 0) {
            missing.push_back(at);
            descriptors.push_back(range->descriptor.data());
            lengths.push_back(range->descriptor.size());
        }
    }
    if (missing.empty()) return HYDRANT_SUCCESS;
    std::vector<hydrant_remote*> made(missing.size());
    const int status =
        hydrant_remote_open_many(handle(), descriptors.data(), lengths.data(), missing.size(), made.data());
    if (status != HYDRANT_SUCCESS) return status;
    for (std::size_t at = 0; at < missing.size(); at++) {
        remotes[missing[at]] = made[at];
        opened.emplace(ranges[missing[at]].get(), made[at]);
    }
    return HYDRANT_SUCCESS;
}

void Peer::forget(std::uint64_t old_epoch) {
    std::lock_guard guard(lock);
    if (old_epoch == 0 || old_epoch != epoch()) return;
    close_ranges_locked();
    current.store(0, std::memory_order_release);
    if (hydrant_peer* old = peer.exchange(nullptr)) hydrant_peer_drop(old);
}

void Peer::close_ranges() {
    std::lock_guard guard(lock);
    close_ranges_locked();
}

void Peer::close_ranges_locked() {
    for (auto& [range, remote] : opened) hydrant_remote_close(remote);
    opened.clear();
    if (handle()) current.store(++last_epoch, std::memory_order_release);
}

int Peer::send(const std::string& message) {
    if (!handle()) {
        if (const int status = connect()) return status;
    }
    hydrant_peer* to = handle();
    if (!to) return HYDRANT_ERROR_PEER_LOST;
    // A batch without parts keeps the message until the peer has room, so that this call does not wait for a peer.
    hydrant_batch* batch = nullptr;
    int status = hydrant_peer_send(to, message.data(), message.size(), 0);
    if (status != HYDRANT_ERROR_BUSY) return status;
    status = hydrant_batch_start(HYDRANT_WRITE, nullptr, 0, to, message.data(), message.size(), 0, &batch);
    if (status != HYDRANT_SUCCESS) return status;
    status = hydrant_batch_wait(batch);
    hydrant_batch_free(batch);
    return status;
}

PeerRange::~PeerRange() {
    std::lock_guard guard(peer->lock);
    auto found = peer->opened.find(this);
    if (found == peer->opened.end()) return;
    hydrant_remote_close(found->second);
    peer->opened.erase(found);
}

abi::RangeHandle* RangeTable::add(RangeEntry entry) {
    auto made = std::make_unique<HeldRange>();
    std::lock_guard guard(lock);
    entries.emplace(made.get(), std::move(entry));
    return made.release();
}

RangeEntry RangeTable::find(const abi::RangeHandle* handle) const {
    std::shared_lock guard(lock);
    auto found = entries.find(handle);
    return found == entries.end() ? RangeEntry() : found->second;
}

RangeEntry RangeTable::remove(abi::RangeHandle* handle) {
    std::unique_lock guard(lock);
    auto found = entries.find(handle);
    if (found == entries.end()) return {};
    RangeEntry entry = std::move(found->second);
    entries.erase(found);
    guard.unlock();
    delete handle;
    return entry;
}

} // namespace hydrant_nixl
