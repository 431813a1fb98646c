// Ranges of memory: own ones, and those of peers.
//
// The agent holds ranges by address, and such an address can dangle. So a table has the range of each address that was
// given out and not taken back, and transfers share the ranges that they use.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi.hpp"
#include "hydrant.h"

namespace hydrant_nixl {

// Own memory that was registered, once or more often.
struct OwnRange {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    // Null for a range without bytes.
    hydrant_region* region = nullptr;
    // What peers need to open the region.
    std::string descriptor;
    // False once the user has taken the memory back.
    std::atomic<bool> is_registered{true};
    // The registrations that were not taken back. The list of own ranges guards it.
    std::size_t registrations = 0;
};

// Own ranges by their place. A range that is registered again is the same range: peers refuse metadata that describes one
// range in two ways.
class OwnRanges {
  public:
    // Finds a range and counts a registration, or makes it by `make`, which returns null if that fails.
    template <typename Make> std::shared_ptr<OwnRange> add(std::uintptr_t address, std::size_t bytes, Make make) {
        std::lock_guard guard(lock);
        std::shared_ptr<OwnRange>& place = ranges[{address, bytes}];
        if (!place) place = make();
        std::shared_ptr<OwnRange> found = place;
        if (found) found->registrations++;
        else ranges.erase({address, bytes});
        return found;
    }

    // Takes a registration back. Returns true if it was the last one.
    bool remove(OwnRange& range) {
        std::lock_guard guard(lock);
        if (--range.registrations > 0) return false;
        ranges.erase({range.address, range.bytes});
        return true;
    }

  private:
    std::mutex lock;
    std::map<std::pair<std::uintptr_t, std::size_t>, std::shared_ptr<OwnRange>> ranges;
};

struct PeerRange;

// A peer, as one load of its metadata describes it.
class Peer {
  public:
    Peer(hydrant_endpoint* endpoint, std::string agent, std::string address)
        : agent(std::move(agent)), address(std::move(address)), endpoint(endpoint) {}
    ~Peer();
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    // Connects unless that was done. Returns a status of Hydrant.
    int connect();

    // Opens ranges that are not open. Stores the handle of each, which holds as long as `epoch` stays.
    int open(const std::vector<std::shared_ptr<PeerRange>>& ranges, std::vector<hydrant_remote*>& remotes);

    // Forgets the connection, and all ranges that were opened by it, if it is still that of `epoch`.
    void forget(std::uint64_t old_epoch);

    // Closes the ranges that are open, as the owner has no room for more.
    void close_ranges();

    // Sends a message. Returns a status of Hydrant.
    int send(const std::string& message);

    // Changes whenever open ranges become useless. It is 0 if there is no connection.
    std::uint64_t epoch() const { return current.load(std::memory_order_acquire); }

    // The connection, or null.
    hydrant_peer* handle() const { return peer.load(std::memory_order_acquire); }

    const std::string agent;
    const std::string address;

  private:
    int connect_locked();
    void close_ranges_locked();

    hydrant_endpoint* const endpoint;
    std::mutex lock;
    std::atomic<hydrant_peer*> peer{nullptr};
    std::atomic<std::uint64_t> current{0};
    std::uint64_t last_epoch = 0;
    std::unordered_map<PeerRange*, hydrant_remote*> opened;

    friend struct PeerRange;
};

// Memory of a peer.
struct PeerRange {
    PeerRange(std::shared_ptr<Peer> peer, std::uintptr_t address, std::size_t bytes, std::string descriptor)
        : peer(std::move(peer)), address(address), bytes(bytes), descriptor(std::move(descriptor)) {}
    ~PeerRange();

    const std::shared_ptr<Peer> peer;
    const std::uintptr_t address;
    const std::size_t bytes;
    const std::string descriptor;
};

// What the agent holds of a range: its own memory, its own memory as the target of its own transfers, or a peer's.
struct HeldRange final : abi::RangeHandle {};

struct RangeEntry {
    std::shared_ptr<OwnRange> own;
    std::shared_ptr<PeerRange> of_peer;
};

// All ranges that the agent holds.
class RangeTable {
  public:
    abi::RangeHandle* add(RangeEntry entry);
    // Returns an empty entry if the agent does not hold it.
    RangeEntry find(const abi::RangeHandle* handle) const;
    RangeEntry remove(abi::RangeHandle* handle);

  private:
    mutable std::shared_mutex lock;
    std::unordered_map<const abi::RangeHandle*, RangeEntry> entries;
};

} // namespace hydrant_nixl
