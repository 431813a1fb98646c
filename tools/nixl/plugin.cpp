// The two functions by which NIXL's agent finds the plugin.

#include <cstdio>
#include <exception>

#include <dlfcn.h>

#include "abi.hpp"
#include "engine.hpp"
#include "report.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace hydrant_nixl {

namespace {

abi::EngineBase* create(const abi::Init* init) {
    try {
        return new Engine(*init);
    } catch (const std::exception& error) {
        refuse(abi::Status::Backend, std::string("the engine could not be made: ") + error.what());
        return nullptr;
    }
}

void destroy(abi::EngineBase* engine) {
    auto* own = static_cast<Engine*>(engine);
    // In a forked process the locks may be held by threads that are not there, so all of it stays.
    if (own && !own->is_foreign()) delete own;
}

const char* name() { return "HYDRANT"; }

const char* version() { return HYDRANT_NIXL_VERSION; }

abi::Parameters options() {
    return {{"peer_timeout_ms", "3000"}, {"hosts", "if_available"}, {"interfaces", ""}};
}

std::vector<abi::Memory> memories() { return {abi::Memory::Dram}; }

abi::Plugin plugin = {abi::PLUGIN_VERSION, create, destroy, name, version, options, memories};

// Returns true if the caller's library has the virtual functions of NIXL 1.0 and later. The number in the structure does
// not tell: 0.10 has the same, and four more functions. A view of local memory is of 1.0.
bool is_known_caller(void* caller) {
    constexpr const char* SINCE_1_0 =
        "_ZNK17nixlBackendEngine11prepMemViewERK12nixlDescListI12nixlMetaDescERPvPK23nixlBackendOptionalArgs";
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname) return false;
    void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    // A program that contains NIXL is opened by no name.
    if (!library) library = dlopen(nullptr, RTLD_LAZY);
    if (!library) return false;
    const bool is_known = dlsym(library, SINCE_1_0) != nullptr;
    dlclose(library);
    return is_known;
}

} // namespace

} // namespace hydrant_nixl

EXPORTED hydrant_nixl::abi::Plugin* nixl_plugin_init() {
    if (!hydrant_nixl::is_known_caller(__builtin_return_address(0))) {
        std::fputs("HYDRANT: this plugin is for NIXL 1.0 and later, and the library that loads it is another\n", stderr);
        return nullptr;
    }
    return &hydrant_nixl::plugin;
}

EXPORTED void nixl_plugin_fini() {}
