#include "mailbox.hpp"

#include <cstring>
#include <system_error>

#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "report.hpp"

namespace hydrant_nixl {

namespace {

// "N1", the length of the name in two bytes, the name, the message.
constexpr char MAGIC[2] = {'N', '1'};
constexpr std::size_t HEAD = 4;
// The bytes of kept messages above which peers have to wait.
constexpr std::size_t MOST_KEPT = 64 << 20;
// The milliseconds that the program has to take a message before the thread does.
constexpr int MOMENT = 2;
// The milliseconds between two looks whether the program has made room.
constexpr int FULL_MOMENT = 50;

bool unpack_message(const char* bytes, std::size_t count, std::string& sender, std::string& message) {
    if (count < HEAD || std::memcmp(bytes, MAGIC, sizeof MAGIC)) return false;
    const auto low = static_cast<unsigned char>(bytes[2]), high = static_cast<unsigned char>(bytes[3]);
    const std::size_t name = low | std::size_t(high) << 8;
    if (count - HEAD < name) return false;
    sender.assign(bytes + HEAD, name);
    message.assign(bytes + HEAD + name, count - HEAD - name);
    return true;
}

} // namespace

std::string pack_message(const std::string& sender, const std::string& message) {
    std::string packed;
    packed.reserve(HEAD + sender.size() + message.size());
    packed.append(MAGIC, sizeof MAGIC);
    packed.push_back(char(sender.size() & 0xff));
    packed.push_back(char(sender.size() >> 8 & 0xff));
    packed += sender;
    packed += message;
    return packed;
}

bool Mailbox::start(hydrant_endpoint* of) {
    endpoint = of;
    if (hydrant_endpoint_event_descriptor(endpoint, &events) != HYDRANT_SUCCESS) return false;
    stopping = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stopping < 0) return false;
    // Signals are the program's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        close(stopping);
        stopping = -1;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return stopping >= 0;
}

void Mailbox::stop() {
    if (!thread.joinable()) return;
    const std::uint64_t one = 1;
    // A counter of 0 has room for 1.
    [[maybe_unused]] const auto written = write(stopping, &one, sizeof one);
    thread.join();
    close(stopping);
}

void Mailbox::run() {
    pthread_setname_np(pthread_self(), "hydrant-nixl");
    for (;;) {
        pollfd both[2] = {{events, POLLIN, 0}, {stopping, POLLIN, 0}};
        poll(both, 2, -1);
        if (both[1].revents) return;
        pollfd stop = {stopping, POLLIN, 0};
        if (poll(&stop, 1, is_full() ? FULL_MOMENT : MOMENT) > 0) return;
        if (!is_full()) {
            std::lock_guard guard(lock);
            drain();
        }
    }
}

bool Mailbox::is_full() {
    std::lock_guard guard(lock);
    return kept_bytes >= MOST_KEPT;
}

void Mailbox::drain() {
    while (kept_bytes < MOST_KEPT) {
        hydrant_event event;
        if (hydrant_endpoint_event(endpoint, 0, &event) != HYDRANT_SUCCESS || event.kind == 0) return;
        if (event.kind == HYDRANT_EVENT_MESSAGE) {
            std::string sender, message;
            if (unpack_message(static_cast<const char*>(event.message), event.bytes, sender, message)) {
                kept_bytes += event.bytes + 64;
                kept.emplace_back(std::move(sender), std::move(message));
            } else {
                refuse(abi::Status::Mismatch, "a message that is not of this plugin was dropped");
            }
        }
        hydrant_event_free(&event);
    }
}

void Mailbox::take(abi::Notes& notes) {
    std::lock_guard guard(lock);
    drain();
    if (kept.empty()) return;
    if (notes.empty()) {
        notes.swap(kept);
    } else {
        for (auto& note : kept) notes.push_back(std::move(note));
        kept.clear();
    }
    kept_bytes = 0;
}

void Mailbox::add_own(const std::string& sender, const std::string& message) {
    std::lock_guard guard(lock);
    // What peers have sent before comes first.
    drain();
    kept.emplace_back(sender, message);
    kept_bytes += message.size() + 64;
}

} // namespace hydrant_nixl
