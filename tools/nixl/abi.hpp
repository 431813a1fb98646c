// The binary interface between NIXL's agent and a backend plugin, in declarations of our own.
//
// The layouts are those of NIXL 1.0 to 1.5 on x86-64 with libstdc++'s strings. Sizes and offsets are asserted at the end
// of this file. No name is NIXL's, so no symbol of a plugin can be taken for one of the agent's library.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hydrant_nixl::abi {

enum class Memory : unsigned { Dram = 0, Vram = 1, Block = 2, Object = 3, File = 4 };
enum class Operation : unsigned { Read = 0, Write = 1 };
enum class Sync : int { None = 0, Strict = 1, ReadWrite = 2 };
enum class CostMethod : int { Analytical = 0 };

enum class Status : int {
    InProgress = 1,
    Success = 0,
    NotPosted = -1,
    InvalidParameter = -2,
    Backend = -3,
    NotFound = -4,
    Mismatch = -5,
    NotAllowed = -6,
    RepostActive = -7,
    Unknown = -8,
    NotSupported = -9,
    RemoteDisconnect = -10,
    Canceled = -11,
    NoTelemetry = -12,
};

using Parameters = std::unordered_map<std::string, std::string>;
// Pairs of a sender's name and its message.
using Notes = std::vector<std::pair<std::string, std::string>>;
using QueryAnswers = std::vector<std::optional<Parameters>>;

struct Descriptor {
    std::uintptr_t address;
    std::size_t bytes;
    std::uint64_t device;
};

struct BlobDescriptor {
    Descriptor at;
    std::string blob;
};

// The base of what a plugin keeps about a range. The agent only passes its address on.
struct RangeHandle {
    bool is_private = false;
    virtual ~RangeHandle() = default;
};

struct RangeDescriptor {
    Descriptor at;
    RangeHandle* handle;
};

struct RemoteRangeDescriptor {
    RangeDescriptor range;
    std::string agent;
};

// A list that the agent owns. It has virtual functions of the agent's own, so it is only read here.
template <typename T> struct List {
    void* functions;
    Memory memory;
    std::vector<T> items;

    List() = delete;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
};

struct TransferArguments {
    std::string message;
    bool has_message;
    std::string custom;
};

struct Init {
    std::string local_agent;
    std::string type;
    Parameters* parameters;
    bool wants_thread;
    std::uint64_t thread_delay;
    Sync sync;
    bool wants_telemetry;
};

// The base of a plugin's state of one transfer.
struct RequestHandle {
    virtual ~RequestHandle() = default;
};

// The telemetry events that a plugin may leave. None are left here.
struct Event {
    std::uint64_t words[7];
};

using RangeList = List<RangeDescriptor>;
using RemoteRangeList = List<RemoteRangeDescriptor>;
using BlobList = List<BlobDescriptor>;

// The base of an engine. The order of its virtual functions is the interface: the agent calls them by their number.
class EngineBase {
  public:
    explicit EngineBase(const Init& init)
        : type(init.type), parameters(init.parameters ? *init.parameters : Parameters()), local_agent(init.local_agent),
          wants_telemetry(init.wants_telemetry) {}
    EngineBase(const EngineBase&) = delete;
    EngineBase& operator=(const EngineBase&) = delete;

    virtual ~EngineBase() = default;
    virtual bool supports_remote() const = 0;
    virtual bool supports_local() const = 0;
    virtual bool supports_messages() const = 0;
    virtual std::vector<Memory> supported_memory() const = 0;
    virtual Status register_memory(const BlobDescriptor& range, const Memory& memory, RangeHandle*& handle) = 0;
    virtual Status deregister_memory(RangeHandle* handle) = 0;
    virtual Status connect(const std::string& agent) = 0;
    virtual Status disconnect(const std::string& agent) = 0;
    virtual Status unload_range(RangeHandle* handle) = 0;
    virtual Status prepare(const Operation& operation, const RangeList& local, const RangeList& remote,
                           const std::string& agent, RequestHandle*& request, const TransferArguments* arguments) const = 0;
    virtual Status post(const Operation& operation, const RangeList& local, const RangeList& remote,
                        const std::string& agent, RequestHandle*& request, const TransferArguments* arguments) const = 0;
    virtual Status check(RequestHandle* request) const = 0;
    virtual Status release(RequestHandle* request) const = 0;
    virtual Status prepare_view(const RemoteRangeList&, void*&, const TransferArguments*) const {
        return Status::NotSupported;
    }
    virtual Status prepare_view(const RangeList&, void*&, const TransferArguments*) const { return Status::NotSupported; }
    virtual void release_view(void*) const {}
    virtual Status public_data(const RangeHandle* handle, std::string& blob) const = 0;
    virtual Status connection_data(std::string& blob) const = 0;
    virtual Status load_connection(const std::string& agent, const std::string& blob) = 0;
    virtual Status load_remote_range(const BlobDescriptor& range, const Memory& memory, const std::string& agent,
                                     RangeHandle*& handle) = 0;
    virtual Status load_local_range(RangeHandle* handle, RangeHandle*& loaded) = 0;
    virtual Status take_messages(Notes& notes) = 0;
    virtual Status send_message(const std::string& agent, const std::string& message) const = 0;
    virtual Status query_memory(const BlobList&, QueryAnswers&) const { return Status::NotSupported; }
    virtual Status estimate_cost(const Operation&, const RangeList&, const RangeList&, const std::string&,
                                 RequestHandle* const&, std::chrono::microseconds&, std::chrono::microseconds&,
                                 CostMethod&, const void*) const {
        return Status::NotSupported;
    }

  protected:
    // The agent reads the members up to `has_failed` by their offsets.
    std::string type;
    Parameters parameters;
    std::vector<Event> events;
    std::mutex events_lock;
    bool has_failed = false;
    const std::string local_agent;
    const bool wants_telemetry;

  private:
    friend struct Layout;
};

// The answer of the plugin's entry.
struct Plugin {
    int version;
    EngineBase* (*create)(const Init*);
    void (*destroy)(EngineBase*);
    const char* (*name)();
    const char* (*plugin_version)();
    Parameters (*options)();
    std::vector<Memory> (*memories)();
};

inline constexpr int PLUGIN_VERSION = 1;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof" // GCC knows the offsets of these classes
struct Layout {
    static_assert(sizeof(void*) == 8 && sizeof(std::string) == 32 && sizeof(Parameters) == 56 && sizeof(std::mutex) == 40);
    static_assert(sizeof(std::optional<Parameters>) == 64);
    static_assert(sizeof(Descriptor) == 24 && offsetof(Descriptor, bytes) == 8 && offsetof(Descriptor, device) == 16);
    static_assert(sizeof(BlobDescriptor) == 56 && offsetof(BlobDescriptor, blob) == 24);
    static_assert(sizeof(RangeHandle) == 16 && offsetof(RangeHandle, is_private) == 8);
    static_assert(sizeof(RangeDescriptor) == 32 && offsetof(RangeDescriptor, handle) == 24);
    static_assert(sizeof(RemoteRangeDescriptor) == 64 && offsetof(RemoteRangeDescriptor, agent) == 32);
    static_assert(sizeof(RangeList) == 40 && offsetof(RangeList, memory) == 8 && offsetof(RangeList, items) == 16);
    static_assert(sizeof(TransferArguments) == 72 && offsetof(TransferArguments, has_message) == 32);
    static_assert(offsetof(TransferArguments, custom) == 40);
    static_assert(sizeof(Init) == 96 && offsetof(Init, type) == 32 && offsetof(Init, parameters) == 64);
    static_assert(offsetof(Init, wants_thread) == 72 && offsetof(Init, thread_delay) == 80);
    static_assert(offsetof(Init, sync) == 88 && offsetof(Init, wants_telemetry) == 92);
    static_assert(sizeof(RequestHandle) == 8);
    static_assert(sizeof(EngineBase) == 208 && offsetof(EngineBase, type) == 8 && offsetof(EngineBase, parameters) == 40);
    static_assert(offsetof(EngineBase, events) == 96 && offsetof(EngineBase, events_lock) == 120);
    static_assert(offsetof(EngineBase, has_failed) == 160 && offsetof(EngineBase, local_agent) == 168);
    static_assert(offsetof(EngineBase, wants_telemetry) == 200);
    static_assert(sizeof(Plugin) == 56 && offsetof(Plugin, create) == 8 && offsetof(Plugin, memories) == 48);
    static_assert(_GLIBCXX_USE_CXX11_ABI == 1, "NIXL has the new strings of libstdc++");
};
#pragma GCC diagnostic pop

} // namespace hydrant_nixl::abi
