"""Creates the plugin's engine in an agent of the NIXL that this Python has, and uses it once.

A NIXL whose interface is another would crash here, and not in a user's process. Run with the plugin's folder as the only
argument. The last line of the output is the version of NIXL.
"""

import importlib.metadata
import os
import sys
import time


def main():
    os.environ["NIXL_PLUGIN_DIR"] = os.path.abspath(sys.argv[1])
    import numpy as np
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    here = nixl_agent("here", nixl_agent_config(backends=["HYDRANT"]))
    there = nixl_agent("there", nixl_agent_config(backends=["HYDRANT"]))
    own, far = np.arange(1000, dtype=np.uint8), np.zeros(1000, np.uint8)
    here.register_memory([(own.ctypes.data, 1000, 0, "")], "DRAM")
    registered = there.register_memory([(far.ctypes.data, 1000, 0, "")], "DRAM")
    here.add_remote_agent(there.get_agent_metadata())
    handle = here.initialize_xfer(
        "WRITE",
        here.get_xfer_descs([(own.ctypes.data, 1000, 0)], "DRAM"),
        here.get_xfer_descs([(far.ctypes.data, 1000, 0)], "DRAM"),
        "there",
        b"written",
    )
    status = here.transfer(handle)
    while status == "PROC":
        status = here.check_xfer_state(handle)
    if status != "DONE" or not (own == far).all():
        sys.exit("the transfer did not arrive")
    notified, end = {}, time.monotonic() + 10
    while not notified and time.monotonic() < end:
        notified = there.get_new_notifs()
    if notified != {"here": [b"written"]}:
        sys.exit(f"the notification is {notified}")
    here.release_xfer_handle(handle)
    here.remove_remote_agent("there")
    there.deregister_memory(registered)
    del here, there
    print("nixl-cu12", importlib.metadata.version("nixl-cu12"))


if __name__ == "__main__":
    main()
