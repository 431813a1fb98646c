// The engine of one agent: an endpoint of Hydrant, its ranges and its peers.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "abi.hpp"
#include "hydrant.h"
#include "mailbox.hpp"
#include "ranges.hpp"
#include "transfer.hpp"

namespace hydrant_nixl {

class Engine final : public abi::EngineBase {
  public:
    // Sets `has_failed` if there is no endpoint.
    explicit Engine(const abi::Init& init);
    ~Engine() override;

    bool supports_remote() const override { return true; }
    bool supports_local() const override { return true; }
    bool supports_messages() const override { return true; }
    std::vector<abi::Memory> supported_memory() const override { return {abi::Memory::Dram}; }

    abi::Status register_memory(const abi::BlobDescriptor& range, const abi::Memory& memory,
                                abi::RangeHandle*& handle) override;
    abi::Status deregister_memory(abi::RangeHandle* handle) override;
    abi::Status public_data(const abi::RangeHandle* handle, std::string& blob) const override;
    abi::Status load_local_range(abi::RangeHandle* handle, abi::RangeHandle*& loaded) override;
    abi::Status load_remote_range(const abi::BlobDescriptor& range, const abi::Memory& memory, const std::string& agent,
                                  abi::RangeHandle*& handle) override;
    abi::Status unload_range(abi::RangeHandle* handle) override;

    abi::Status connection_data(std::string& blob) const override;
    abi::Status load_connection(const std::string& agent, const std::string& blob) override;
    abi::Status connect(const std::string& agent) override;
    abi::Status disconnect(const std::string& agent) override;

    abi::Status prepare(const abi::Operation& operation, const abi::RangeList& local, const abi::RangeList& remote,
                        const std::string& agent, abi::RequestHandle*& request,
                        const abi::TransferArguments* arguments) const override;
    abi::Status post(const abi::Operation& operation, const abi::RangeList& local, const abi::RangeList& remote,
                     const std::string& agent, abi::RequestHandle*& request,
                     const abi::TransferArguments* arguments) const override;
    abi::Status check(abi::RequestHandle* request) const override;
    abi::Status release(abi::RequestHandle* request) const override;

    abi::Status take_messages(abi::Notes& notes) override;
    abi::Status send_message(const std::string& agent, const std::string& message) const override;

    // True in a process that was forked from the engine's. Nothing of it may be used or freed there.
    bool is_foreign() const;

  private:
    std::shared_ptr<Peer> peer(const std::string& agent) const;
    bool open_endpoint();
    // Lends a range to peers. Returns null, with the status, if that fails.
    std::shared_ptr<OwnRange> lend(const abi::Descriptor& range, abi::Status& status);

    const unsigned origin;
    hydrant_endpoint* endpoint = nullptr;
    RangeTable ranges;
    OwnRanges own_ranges;
    // Transfers are made by functions that the interface calls constant.
    mutable ActiveTransfers active;
    mutable Mailbox mailbox;
    mutable std::shared_mutex peers_lock;
    std::unordered_map<std::string, std::shared_ptr<Peer>> peers;
};

} // namespace hydrant_nixl
