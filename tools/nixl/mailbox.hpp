// The messages that an agent has received and not yet taken.
//
// The agent takes messages when its program asks. A thread takes those that nobody asks for, since a peer may have no
// more than 1 MiB of them on the way. It sleeps until there is one, and then gives the program a moment to come first.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "abi.hpp"
#include "hydrant.h"

namespace hydrant_nixl {

// A message as it is sent: its sender's name goes along.
std::string pack_message(const std::string& sender, const std::string& message);

class Mailbox {
  public:
    Mailbox() = default;
    ~Mailbox() { stop(); }
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    // Begins to take messages of an endpoint. Returns false, with errno, if the system refuses a thread or a descriptor.
    bool start(hydrant_endpoint* of);
    // Ends the thread. It may come more than once.
    void stop();

    // Appends what has arrived, and forgets it.
    void take(abi::Notes& notes);
    // Adds a message of the agent to itself.
    void add_own(const std::string& sender, const std::string& message);

  private:
    void run();
    // Takes events until there are none, or too much is kept.
    void drain();
    // Returns true if more messages wait than are taken ahead.
    bool is_full();

    hydrant_endpoint* endpoint = nullptr;
    int events = -1;
    int stopping = -1;
    std::thread thread;
    std::mutex lock;
    abi::Notes kept;
    std::size_t kept_bytes = 0;
};

} // namespace hydrant_nixl
