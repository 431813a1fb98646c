#include "report.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <pthread.h>

#include "hydrant.h"

namespace hydrant_nixl {

namespace {

enum class Level { Once, All, Off };

Level level() {
    static const Level chosen = [] {
        const char* text = std::getenv("HYDRANT_NIXL_LOG");
        if (!text) return Level::Once;
        if (!std::strcmp(text, "all")) return Level::All;
        return std::strcmp(text, "off") ? Level::Once : Level::Off;
    }();
    return chosen;
}

// A bit for each status of Hydrant, and one for each of NIXL behind them.
std::atomic<std::uint64_t> told[2];

void tell(bool is_own, int status, const char* doing, const char* sentence) {
    if (level() == Level::Off) return;
    const std::uint64_t bit = std::uint64_t(1) << (unsigned(-status) & 63);
    const bool is_known = told[is_own].fetch_or(bit) & bit;
    if (is_known && level() == Level::Once) return;
    const char* more = level() == Level::Once ? " (more of this kind are not shown; HYDRANT_NIXL_LOG=all shows them)" : "";
    std::fprintf(stderr, "HYDRANT: %s%s%s\n", doing, sentence, more);
}

std::atomic<unsigned> forks{0};

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

const int watches_forks = pthread_atfork(nullptr, nullptr, count_fork);

} // namespace

abi::Status status_of(int hydrant_status) {
    using abi::Status;
    switch (hydrant_status) {
    case HYDRANT_SUCCESS:
        return Status::Success;
    case HYDRANT_ERROR_PEER_LOST:
    case HYDRANT_ERROR_LEFT:
    case HYDRANT_ERROR_UNREACHABLE:
        return Status::RemoteDisconnect;
    case HYDRANT_ERROR_REVOKED:
    case HYDRANT_ERROR_EXPIRED:
    case HYDRANT_ERROR_PERMISSION:
        return Status::NotAllowed;
    case HYDRANT_ERROR_CANCELLED:
        return Status::Canceled;
    case HYDRANT_ERROR_NULL:
    case HYDRANT_ERROR_ARGUMENT:
    case HYDRANT_ERROR_BOUNDS:
    case HYDRANT_ERROR_ADDRESS:
    case HYDRANT_ERROR_OVERFLOW:
    case HYDRANT_ERROR_TOO_LONG:
        return Status::InvalidParameter;
    case HYDRANT_ERROR_DESCRIPTOR:
    case HYDRANT_ERROR_LENGTH:
        return Status::Mismatch;
    default:
        return Status::Backend;
    }
}

abi::Status fail(const char* doing, int hydrant_status) {
    tell(false, hydrant_status, doing, (std::string(": ") + hydrant_last_error()).c_str());
    return status_of(hydrant_status);
}

abi::Status refuse(abi::Status status, const std::string& sentence) {
    tell(true, int(status), "", sentence.c_str());
    return status;
}

bool is_forked(unsigned origin) { return origin != forks.load(std::memory_order_relaxed); }

unsigned process_number() {
    (void)watches_forks;
    return forks.load(std::memory_order_relaxed);
}

} // namespace hydrant_nixl
