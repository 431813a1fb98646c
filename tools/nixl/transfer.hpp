// One transfer: what is copied where, and how far it is.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi.hpp"
#include "hydrant.h"
#include "mailbox.hpp"
#include "ranges.hpp"

namespace hydrant_nixl {

class Transfer;

// The batches that are under way, so that memory can be taken back from them.
class ActiveTransfers {
  public:
    void add(const Transfer* transfer, hydrant_batch* batch);
    void remove(const Transfer* transfer);
    // Cancels those that use own memory. When this returns, nothing of them lands any more.
    void cancel_uses_of(const OwnRange* range);
    // Cancels those with a peer, likewise.
    void cancel_those_with(const Peer* peer);
    void cancel_all();

  private:
    template <typename Which> void cancel(Which which);

    std::mutex lock;
    std::unordered_map<const Transfer*, hydrant_batch*> batches;
};

// The parts of an engine that transfers need.
struct TransferContext {
    const std::string* agent;
    ActiveTransfers* active;
    Mailbox* mailbox;
};

class Transfer final : public abi::RequestHandle {
  public:
    // A transfer with `peer`, or with the agent itself if that is null.
    Transfer(TransferContext context, abi::Operation operation, std::shared_ptr<Peer> peer)
        : context(context), operation(operation), peer(std::move(peer)) {}
    ~Transfer() override;

    // Plans the copies. The ranges are looked up by their handles, which must be valid now and may dangle later.
    abi::Status plan(const RangeTable& table, const abi::RangeList& local, const abi::RangeList& remote);
    // Opens what is needed at the peer ahead of the first post. Errors show at the post.
    void prepare();
    abi::Status post(const abi::TransferArguments* arguments);
    abi::Status check();
    // Stops the transfer. When this returns, nothing of it lands any more.
    void cancel();

    bool uses(const OwnRange* range) const;
    bool is_with(const Peer* other) const { return peer.get() == other; }

  private:
    struct OwnCopy {
        char* to;
        const char* from;
        std::size_t bytes;
    };

    abi::Status add(const abi::Descriptor& local, const abi::Descriptor& remote);
    // Returns the status of the first own range that was taken back, or success.
    abi::Status check_own() const;
    abi::Status copy_own(const abi::TransferArguments* arguments);
    // Fills the handles of the peer's ranges into the runs. Returns a status of Hydrant.
    int resolve();
    int open_all();
    int start(const std::string* message);
    abi::Status end(hydrant_batch* over);
    abi::Status lost_or(const char* doing, int status);

    const TransferContext context;
    const abi::Operation operation;
    const std::shared_ptr<Peer> peer;

    std::vector<std::shared_ptr<OwnRange>> own;
    std::vector<std::shared_ptr<PeerRange>> ranges;
    // The runs, and the index of the range of each, with a peer; the copies, without.
    std::vector<hydrant_run> runs;
    std::vector<std::uint32_t> range_of;
    std::vector<OwnCopy> copies;
    std::uint64_t bytes = 0;

    std::mutex lock;
    // The connection to which the handles in the runs belong.
    std::uint64_t epoch = 0;
    hydrant_batch* batch = nullptr;
    abi::Status last = abi::Status::NotPosted;
};

} // namespace hydrant_nixl
