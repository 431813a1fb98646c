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

int Peer::open(PeerRange& range, hydrant_remote*& remote) {
    std::lock_guard guard(lock);
    if (const int status = connect_locked()) return status;
    if (auto found = opened.find(&range); found != opened.end()) {
        remote = found->second;
        return HYDRANT_SUCCESS;
    }
    const int status = hydrant_remote_open(handle(), range.descriptor.data(), range.descriptor.size(), &remote);
    if (status == HYDRANT_SUCCESS) opened.emplace(&range, remote);
    return status;
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
