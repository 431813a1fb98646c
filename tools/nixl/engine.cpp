#include "engine.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "report.hpp"

namespace hydrant_nixl {

using abi::Status;

namespace {

// The first byte of what peers get, so that a later version can change the rest.
constexpr char FORMAT = 1;
// The most bytes of an address and of a descriptor, which the header of Hydrant calls a few hundred.
constexpr std::size_t ROOM = 16 << 10;
// The most bytes of an agent's name that an endpoint can have, too.
constexpr std::size_t LONGEST_NAME = 200;
// The nanoseconds between two sentences about a peer that does not let go of memory.
constexpr std::uint64_t REVOKE_PATIENCE = 3'000'000'000;

Status forked() {
    return refuse(Status::Backend, "this process was forked from the agent's, and cannot use it");
}

std::uint64_t peer_timeout(const abi::Parameters& parameters) {
    const auto found = parameters.find("peer_timeout_ms");
    return found == parameters.end() ? 0 : std::strtoull(found->second.c_str(), nullptr, 10) * 1'000'000;
}

// Sets whether peers of other hosts connect, and by which interfaces. Returns false for a value that is none.
bool choose_hosts(const abi::Parameters& parameters, hydrant_endpoint_options& options) {
    const auto hosts = parameters.find("hosts");
    const std::string choice = hosts == parameters.end() ? "if_available" : hosts->second;
    if (choice == "none") {
        options.hosts = HYDRANT_HOSTS_NONE;
    } else if (choice == "if_available") {
        options.hosts = HYDRANT_HOSTS_IF_AVAILABLE;
    } else if (choice == "required") {
        options.hosts = HYDRANT_HOSTS_REQUIRED;
    } else {
        refuse(Status::InvalidParameter, "the parameter hosts is none, if_available or required, and not: " + choice);
        return false;
    }
    const auto interfaces = parameters.find("interfaces");
    if (interfaces != parameters.end() && !interfaces->second.empty()) options.interfaces = interfaces->second.c_str();
    return true;
}

// Takes the byte of the format off.
bool unpack(const std::string& blob, std::string& content) {
    if (blob.empty() || blob[0] != FORMAT) return false;
    content = blob.substr(1);
    return true;
}

} // namespace

Engine::Engine(const abi::Init& init) : EngineBase(init), origin(process_number()) { has_failed = !open_endpoint(); }

bool Engine::open_endpoint() {
    if (local_agent.size() > 0xffff) {
        refuse(Status::InvalidParameter, "the agent's name is longer than 65,535 bytes");
        return false;
    }
    const bool is_name = local_agent.size() <= LONGEST_NAME && local_agent.find('\0') == std::string::npos;
    hydrant_endpoint_options options = {};
    options.name = is_name ? local_agent.c_str() : nullptr;
    options.peer_timeout = peer_timeout(parameters);
    if (!choose_hosts(parameters, options)) return false;
    int status = hydrant_endpoint_open(&options, &endpoint);
    if (status == HYDRANT_ERROR_ARGUMENT || status == HYDRANT_ERROR_TOO_LONG) {
        // The name is not UTF-8. Peers know the agent by the name in its messages.
        options.name = nullptr;
        status = hydrant_endpoint_open(&options, &endpoint);
    }
    if (status != HYDRANT_SUCCESS) {
        fail("no endpoint could be opened", status);
        return false;
    }
    if (!mailbox.start(endpoint)) {
        refuse(Status::Backend, std::string("the thread for messages could not be started: ") + std::strerror(errno));
        return false;
    }
    return true;
}

Engine::~Engine() {
    active.cancel_all();
    mailbox.stop();
    {
        std::lock_guard guard(peers_lock);
        peers.clear();
    }
    if (endpoint) hydrant_endpoint_close(endpoint);
}

bool Engine::is_foreign() const { return is_forked(origin); }

Status Engine::register_memory(const abi::BlobDescriptor& range, const abi::Memory& memory, abi::RangeHandle*& handle) {
    if (is_foreign()) return forked();
    if (memory != abi::Memory::Dram) {
        return refuse(Status::NotSupported, "only memory of the host (DRAM) can be registered");
    }
    Status status = Status::Success;
    auto own = own_ranges.add(range.at.address, range.at.bytes, [&] { return lend(range.at, status); });
    if (own) handle = ranges.add({std::move(own), nullptr});
    return status;
}

std::shared_ptr<OwnRange> Engine::lend(const abi::Descriptor& range, Status& status) {
    auto own = std::make_shared<OwnRange>();
    own->address = range.address;
    own->bytes = range.bytes;
    if (own->bytes == 0) return own;
    void* start = reinterpret_cast<void*>(own->address);
    if (const int failed = hydrant_region_expose(endpoint, start, own->bytes, &own->region)) {
        status = fail("memory could not be registered", failed);
        return nullptr;
    }
    own->descriptor.resize(ROOM);
    std::size_t length = 0;
    if (const int failed = hydrant_region_describe(own->region, 0, own->bytes, HYDRANT_READ | HYDRANT_WRITE, 0,
                                                   own->descriptor.data(), own->descriptor.size(), &length)) {
        status = fail("memory could not be described", failed);
        hydrant_region_revoke(own->region);
        return nullptr;
    }
    own->descriptor.resize(length);
    own->descriptor.shrink_to_fit();
    return own;
}

Status Engine::deregister_memory(abi::RangeHandle* handle) {
    if (is_foreign()) return forked();
    const RangeEntry entry = ranges.remove(handle);
    if (!entry.own) return refuse(Status::NotFound, "memory to be deregistered is not registered");
    OwnRange& own = *entry.own;
    if (!own_ranges.remove(own)) return Status::Success;
    own.is_registered.store(false, std::memory_order_release);
    active.cancel_uses_of(&own);
    if (!own.region) return Status::Success;
    int status;
    // The memory is the program's again once this returns, so it waits for the last use of a peer.
    while ((status = hydrant_region_revoke_within(own.region, REVOKE_PATIENCE)) == HYDRANT_ERROR_BUSY) {
        fail("deregistration waits for a peer that is stopped while it copies", status);
    }
    return status == HYDRANT_SUCCESS ? Status::Success : fail("memory could not be revoked", status);
}

Status Engine::public_data(const abi::RangeHandle* handle, std::string& blob) const {
    if (is_foreign()) return forked();
    const RangeEntry entry = ranges.find(handle);
    if (!entry.own) return refuse(Status::NotFound, "memory to be published is not registered");
    blob.assign(1, FORMAT);
    blob += entry.own->descriptor;
    return Status::Success;
}

Status Engine::load_local_range(abi::RangeHandle* handle, abi::RangeHandle*& loaded) {
    if (is_foreign()) return forked();
    const RangeEntry entry = ranges.find(handle);
    if (!entry.own) return refuse(Status::NotFound, "memory to be loaded is not registered");
    // The agent frees both, in any order.
    loaded = ranges.add({entry.own, nullptr});
    return Status::Success;
}

Status Engine::load_remote_range(const abi::BlobDescriptor& range, const abi::Memory& memory, const std::string& agent,
                                 abi::RangeHandle*& handle) {
    if (is_foreign()) return forked();
    if (memory != abi::Memory::Dram) {
        return refuse(Status::NotSupported, "metadata names memory that is not of a host (DRAM)");
    }
    std::shared_ptr<Peer> of = peer(agent);
    if (!of) return refuse(Status::NotFound, "metadata names memory of an unknown agent");
    std::string descriptor;
    if (!unpack(range.blob, descriptor)) return refuse(Status::Mismatch, "metadata of memory has an unknown format");
    auto made = std::make_shared<PeerRange>(of, range.at.address, range.at.bytes, std::move(descriptor));
    handle = ranges.add({nullptr, std::move(made)});
    return Status::Success;
}

Status Engine::unload_range(abi::RangeHandle* handle) {
    if (is_foreign()) return forked();
    if (handle) ranges.remove(handle);
    return Status::Success;
}

Status Engine::connection_data(std::string& blob) const {
    if (is_foreign()) return forked();
    std::string address(ROOM, '\0');
    std::size_t length = 0;
    const int status = hydrant_endpoint_address(endpoint, address.data(), address.size(), &length);
    if (status != HYDRANT_SUCCESS) return fail("the endpoint's address could not be read", status);
    blob.assign(1, FORMAT);
    blob.append(address, 0, length);
    return Status::Success;
}

std::shared_ptr<Peer> Engine::peer(const std::string& agent) const {
    std::shared_lock guard(peers_lock);
    const auto found = peers.find(agent);
    return found == peers.end() ? nullptr : found->second;
}

Status Engine::load_connection(const std::string& agent, const std::string& blob) {
    if (is_foreign()) return forked();
    std::string address;
    if (!unpack(blob, address)) return refuse(Status::Mismatch, "metadata of an agent has an unknown format");
    auto made = std::make_shared<Peer>(endpoint, agent, std::move(address));
    std::lock_guard guard(peers_lock);
    std::shared_ptr<Peer>& place = peers[agent];
    // The agent forgets a peer whose load has failed without a word.
    if (!place || place->address != made->address) place = std::move(made);
    return Status::Success;
}

Status Engine::connect(const std::string& agent) {
    if (is_foreign()) return forked();
    if (agent == local_agent) return Status::Success;
    const std::shared_ptr<Peer> to = peer(agent);
    if (!to) return refuse(Status::NotFound, "an unknown agent cannot be connected");
    const int status = to->connect();
    return status == HYDRANT_SUCCESS ? Status::Success : fail("a peer could not be connected", status);
}

Status Engine::disconnect(const std::string& agent) {
    if (is_foreign()) return forked();
    std::shared_ptr<Peer> old;
    {
        std::lock_guard guard(peers_lock);
        const auto found = peers.find(agent);
        if (found == peers.end()) return agent == local_agent ? Status::Success : Status::NotFound;
        old = std::move(found->second);
        peers.erase(found);
    }
    // The program cannot ask for its transfers any more, so nothing of them may go on.
    active.cancel_those_with(old.get());
    old->forget(old->epoch());
    return Status::Success;
}

Status Engine::prepare(const abi::Operation& operation, const abi::RangeList& local, const abi::RangeList& remote,
                       const std::string& agent, abi::RequestHandle*& request, const abi::TransferArguments*) const {
    if (is_foreign()) return forked();
    std::shared_ptr<Peer> with;
    if (agent != local_agent) {
        with = peer(agent);
        if (!with) return refuse(Status::NotFound, "a transfer is with an unknown agent");
    }
    auto made = std::make_unique<Transfer>(TransferContext{&local_agent, &active, &mailbox}, operation, std::move(with));
    const Status status = made->plan(ranges, local, remote);
    if (status != Status::Success) return status;
    made->prepare();
    request = made.release();
    return Status::Success;
}

Status Engine::post(const abi::Operation&, const abi::RangeList&, const abi::RangeList&, const std::string&,
                    abi::RequestHandle*& request, const abi::TransferArguments* arguments) const {
    if (is_foreign()) return forked();
    return static_cast<Transfer*>(request)->post(arguments);
}

Status Engine::check(abi::RequestHandle* request) const {
    if (is_foreign()) return forked();
    return static_cast<Transfer*>(request)->check();
}

Status Engine::release(abi::RequestHandle* request) const {
    // In a child the transfer is the parent's.
    if (!is_foreign()) delete static_cast<Transfer*>(request);
    return Status::Success;
}

Status Engine::take_messages(abi::Notes& notes) {
    if (is_foreign()) return forked();
    mailbox.take(notes);
    return Status::Success;
}

Status Engine::send_message(const std::string& agent, const std::string& message) const {
    if (is_foreign()) return forked();
    if (agent == local_agent) {
        mailbox.add_own(local_agent, message);
        return Status::Success;
    }
    const std::shared_ptr<Peer> to = peer(agent);
    if (!to) return refuse(Status::NotFound, "a notification is for an unknown agent");
    const std::string packed = pack_message(local_agent, message);
    if (packed.size() > HYDRANT_MOST_MESSAGE) {
        return refuse(Status::InvalidParameter, "a notification is longer than 256 KiB");
    }
    const std::uint64_t epoch = to->epoch();
    const int status = to->send(packed);
    if (status == HYDRANT_SUCCESS) return Status::Success;
    const Status told = fail("a notification could not be sent", status);
    if (told == Status::RemoteDisconnect) to->forget(epoch);
    return told;
}

} // namespace hydrant_nixl
