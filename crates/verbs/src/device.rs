//! The RDMA devices of this host, and the port that a rank uses.

#![allow(unsafe_code)] // calls libibverbs

use std::{ffi::CStr, io, mem, ptr};

use hydrant_conduit::Atomicity;

use crate::{
    ffi::{self, Libibverbs, ibv_context, ibv_device, ibv_device_attr, ibv_port_attr},
    gid,
    library::library,
};

/// A port of an RDMA device that is up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Port {
    /// The device, such as `mlx5_0`.
    pub device: String,
    /// The number of the port, from 1.
    pub port: u8,
    /// True if the link layer is Ethernet (RoCE) and not InfiniBand.
    pub ethernet: bool,
    /// The index of the port's GID that peers are told.
    pub gid_index: u8,
    /// That GID.
    pub gid: [u8; 16],
    /// The local identifier within an InfiniBand subnet.
    pub lid: u16,
    /// The path MTU: data bytes of a packet.
    pub mtu: u32,
    /// Most bytes of an operation.
    pub max_message: u32,
    /// The atomicity of the NIC's atomic operations, if it has any.
    pub atomics: Option<Atomicity>,
}

impl Port {
    /// Returns the name as in `HYDRANT_VERBS_DEVICE`: `mlx5_0:1`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let below = if self.ethernet { "RoCE" } else { "InfiniBand" };
        let atomics = match self.atomics {
            None => "no atomics",
            Some(Atomicity::Network) => "atomics among themselves",
            Some(Atomicity::Everything) => "atomics, with processors too",
        };
        write!(
            f,
            "{}:{} ({below}, GID {} {}, MTU {}, {atomics})",
            self.device,
            self.port,
            self.gid_index,
            gid::show(self.gid),
            self.mtu
        )
    }
}

/// Returns the ports that are up.
///
/// `filter` names devices, or ports as `device:port`, separated by commas. An empty filter means
/// all ports.
///
/// # Errors
/// A sentence for users: no library, no device, no port that is up, or no port that the filter
/// names.
pub fn ports(filter: &str, gid_index: Option<u8>) -> Result<Vec<Port>, String> {
    let lib = library()?;
    let list = DeviceList::new(lib).map_err(|cause| {
        format!("no RDMA device: {cause} (is the kernel's driver loaded, and ib_uverbs?)")
    })?;
    let mut down = Vec::new();
    let mut up = Vec::new();
    for device in list.devices() {
        let Ok(opened) = Opened::new(lib, *device) else {
            down.push(format!("{} cannot be opened", device_name(lib, *device)));
            continue;
        };
        let atomics = opened.attributes().map(|attr| atomicity(&attr));
        for (port, attr) in opened.ports() {
            let name = device_name(lib, *device);
            if !matches_filter(filter, &name, port) {
                continue;
            }
            if attr.state != ffi::IBV_PORT_ACTIVE {
                down.push(format!("{name}:{port} is down"));
                continue;
            }
            match gid::choose(&name, port, attr.gid_tbl_len, gid_index) {
                Some(entry) => up.push(Port {
                    device: name,
                    port,
                    ethernet: u32::from(attr.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET,
                    gid_index: entry.index,
                    gid: entry.gid,
                    lid: attr.lid,
                    mtu: 128 << attr.active_mtu.min(5),
                    max_message: attr.max_msg_sz,
                    atomics: atomics.as_ref().map_or(None, |atomics| *atomics),
                }),
                None => down.push(format!("{name}:{port} has no such GID")),
            }
        }
    }
    if up.is_empty() {
        let of = if filter.is_empty() {
            String::new()
        } else {
            format!(" of {filter}")
        };
        return Err(match down.as_slice() {
            [] => format!("no RDMA device{of}"),
            down => format!("no RDMA port{of} is up: {}", down.join(", ")),
        });
    }
    Ok(up)
}

fn atomicity(attr: &ibv_device_attr) -> Option<Atomicity> {
    match attr.atomic_cap {
        ffi::IBV_ATOMIC_HCA => Some(Atomicity::Network),
        ffi::IBV_ATOMIC_GLOB => Some(Atomicity::Everything),
        _ => None,
    }
}

/// Returns whether a filter names a port.
fn matches_filter(filter: &str, device: &str, port: u8) -> bool {
    let mut names = filter
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    filter.trim().is_empty()
        || names.any(|name| match name.split_once(':') {
            Some((name, number)) => name == device && number.parse() == Ok(port),
            None => name == device,
        })
}

fn device_name(lib: &Libibverbs, device: *mut ibv_device) -> String {
    // SAFETY: the device is of a list that is not freed.
    let name = unsafe { lib.ibv_get_device_name(device) };
    // SAFETY: the name is in the device and ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// The list of all devices, until dropped.
struct DeviceList {
    lib: &'static Libibverbs,
    first: *mut *mut ibv_device,
    len: usize,
}

impl DeviceList {
    fn new(lib: &'static Libibverbs) -> io::Result<Self> {
        let mut len = 0;
        // SAFETY: `len` is a local variable.
        let first = unsafe { lib.ibv_get_device_list(&mut len) };
        if first.is_null() {
            return Err(io::Error::last_os_error());
        }
        let len = usize::try_from(len).unwrap_or(0);
        Ok(Self { lib, first, len })
    }

    fn devices(&self) -> &[*mut ibv_device] {
        // SAFETY: the list has `len` devices until it is freed.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: `ibv_get_device_list` returned the list, and nothing freed it before.
        unsafe { self.lib.ibv_free_device_list(self.first) }
    }
}

/// The memory that a device pages on demand, for writes and reads of connected queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DevicePaging {
    /// The whole address space, by one registration.
    pub(crate) everything: bool,
    /// Each registration that asks for it.
    pub(crate) regions: bool,
    /// Words of atomic operations in such registrations, too.
    pub(crate) atomics: bool,
}

impl DevicePaging {
    /// Interprets the capabilities of a device, and those of its connected queue pairs.
    fn of(general: u64, connected: u32) -> Self {
        let has = |bit: u32| general & u64::from(bit) != 0;
        let accesses = ffi::IBV_ODP_SUPPORT_WRITE | ffi::IBV_ODP_SUPPORT_READ;
        let regions = has(ffi::IBV_ODP_SUPPORT) && connected & accesses == accesses;
        Self {
            everything: regions && has(ffi::IBV_ODP_SUPPORT_IMPLICIT),
            regions,
            atomics: regions && connected & ffi::IBV_ODP_SUPPORT_ATOMIC != 0,
        }
    }
}

/// An open device.
pub(crate) struct Opened {
    pub(crate) lib: &'static Libibverbs,
    pub(crate) context: *mut ibv_context,
}

impl Opened {
    fn new(lib: &'static Libibverbs, device: *mut ibv_device) -> io::Result<Self> {
        // SAFETY: the device is of a list that is not freed.
        let context = unsafe { lib.ibv_open_device(device) };
        if context.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { lib, context })
    }

    /// Opens the device of that name.
    pub(crate) fn named(device: &str) -> io::Result<Self> {
        let lib = library().map_err(io::Error::other)?;
        let list = DeviceList::new(lib)?;
        let found = list
            .devices()
            .iter()
            .find(|it| device_name(lib, **it) == device);
        let gone = || io::Error::other(format!("the device {device} is gone"));
        Self::new(lib, *found.ok_or_else(gone)?)
    }

    pub(crate) fn attributes(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: all fields are integers and arrays of them, for which zero is valid.
        let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self`.
        match unsafe { self.lib.ibv_query_device(self.context, &mut attr) } {
            0 => Ok(attr),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Returns the memory that the device pages on demand.
    pub(crate) fn paging(&self) -> DevicePaging {
        // SAFETY: all fields are integers and arrays of them, for which zero is valid.
        let mut attr: ffi::ibv_device_attr_ex = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self`.
        if unsafe { ffi::query_device_ex(self.context, &mut attr) } != 0 {
            return DevicePaging::default();
        }
        let connected = attr.odp_caps.per_transport_caps.rc_odp_caps;
        DevicePaging::of(attr.odp_caps.general_caps, connected)
    }

    fn ports(&self) -> Vec<(u8, ibv_port_attr)> {
        let count = self.attributes().map_or(0, |attr| attr.phys_port_cnt);
        (1..=count)
            .filter_map(|port| Some((port, self.port(port).ok()?)))
            .collect()
    }

    pub(crate) fn port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: all fields are integers, for which zero is valid.
        let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self`.
        match unsafe { ffi::query_port(self.lib, self.context, port, &mut attr) } {
            0 => Ok(attr),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the context is open, and every object made in it is gone.
        unsafe { self.lib.ibv_close_device(self.context) };
        self.context = ptr::null_mut();
    }
}

#[cfg(test)]
mod tests {
    use super::{DevicePaging, matches_filter};

    #[test]
    fn a_filter_names_devices_and_ports() {
        assert!(matches_filter("", "mlx5_0", 1));
        assert!(matches_filter("mlx5_1, mlx5_0", "mlx5_0", 2));
        assert!(matches_filter("mlx5_0:2", "mlx5_0", 2));
        assert!(!matches_filter("mlx5_0:2", "mlx5_0", 1));
        assert!(!matches_filter("mlx5", "mlx5_0", 1));
        assert!(!matches_filter("mlx5_0:x", "mlx5_0", 1));
    }

    #[test]
    fn paging_needs_writes_and_reads() {
        let of = |general, connected| DevicePaging::of(general, connected);
        let none = DevicePaging::default();
        // Soft-RoCE of Linux 7.2, and an mlx5 device, by `ibv_devinfo -v`.
        let soft = of(1, 0b1101_1111);
        assert_eq!(
            (soft.everything, soft.regions, soft.atomics),
            (false, true, true)
        );
        let hardware = of(3, 0b1111);
        let found = (hardware.everything, hardware.regions, hardware.atomics);
        assert_eq!(found, (true, true, false));
        assert_eq!(of(0, 0b1_1111), none);
        assert_eq!(of(3, 0b1_0111), none);
        assert_eq!(of(3, 0b1_1011), none);
    }
}
