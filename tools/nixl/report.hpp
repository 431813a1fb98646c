// Statuses of Hydrant as those of NIXL, and the sentences behind them.
#pragma once

#include <string>

#include "abi.hpp"

namespace hydrant_nixl {

// Returns NIXL's status for one of Hydrant.
abi::Status status_of(int hydrant_status);

// Writes the sentence of this thread's last error of Hydrant to standard error, and returns NIXL's status for it. `doing`
// completes "could not". HYDRANT_NIXL_LOG=all writes each sentence, =off none; by default one is written for each status.
abi::Status fail(const char* doing, int hydrant_status);

// As above, for an error that the plugin itself has found.
abi::Status refuse(abi::Status status, const std::string& sentence);

// Returns true in a process that was forked from the one that made the engine with this number.
bool is_forked(unsigned origin);

// Returns the number of this process, for `is_forked`.
unsigned process_number();

} // namespace hydrant_nixl
