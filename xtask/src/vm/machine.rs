//! One virtual machine: the QEMU process and the channels to it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};

use super::folder::KERNEL_LOG;
use super::image::Initramfs;
use super::words::option_value;
use super::{Accelerator, Error};

/// The kernel's command line. It logs where QEMU records the log, and ends on a panic. It leaves
/// out work that takes time at every start or guards secrets that no guest has.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 8250.nr_uarts=1 \
    mitigations=off tsc=reliable audit=0 apparmor=0 cryptomgr.notests \
    random.trust_cpu=on rcupdate.rcu_expedited=1";

/// The parts of a machine.
pub(crate) struct QemuMachine<'a> {
    /// Its number among the machines of one cluster.
    pub(crate) number: usize,
    /// The kernel it boots.
    pub(crate) kernel: &'a Path,
    /// Its initramfs.
    pub(crate) image: Initramfs,
    /// The folder of the host that it may write to.
    pub(crate) folder: &'a Path,
    /// Its end of the wire, if there is one.
    pub(crate) network: Option<OwnedFd>,
    /// The accelerator of its processors.
    pub(crate) accelerator: Accelerator,
    /// The number of its processors.
    pub(crate) cpus: u32,
    /// Its memory, in QEMU's notation.
    pub(crate) memory: &'a str,
}

/// A machine that runs. The drop kills it, and so does our own death.
pub(crate) struct RunningMachine<'a> {
    child: Child,
    complaints: Option<JoinHandle<String>>,
    /// True if the command asked for its end.
    pub(crate) was_asked_to_end: bool,
    /// The folder of its kernel's log.
    pub(crate) folder: &'a Path,
    /// The standard output of the command.
    pub(crate) out: UnixStream,
    /// The standard error of the command.
    pub(crate) err: UnixStream,
    /// The final status of the command.
    pub(crate) status: UnixStream,
    /// The requests of the command.
    pub(crate) control: UnixStream,
}

/// Kvm where it is likely to work. Nested without the processor's help, the device is there but its
/// users hang.
pub(crate) fn best_accelerator() -> Accelerator {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut flags = processor.split_whitespace();
    let has_support = flags.any(|it| it == "vmx" || it == "svm");
    let device = File::options().read(true).write(true).open("/dev/kvm");
    if has_support && device.is_ok() {
        Accelerator::Kvm
    } else {
        Accelerator::Tcg
    }
}

/// The two ends of a wire between two machines.
pub(crate) fn network() -> Result<[OwnedFd; 2], Error> {
    let ends = UnixDatagram::pair();
    let (one, other) = ends.map_err(Error::system::<io::Error>("make a wire"))?;
    Ok([one.into(), other.into()])
}

impl<'a> QemuMachine<'a> {
    /// Starts the machine. The calling thread must stay: the machine dies with it.
    pub(crate) fn start(self) -> Result<RunningMachine<'a>, Error> {
        let [out, err, status, control] = [channel()?, channel()?, channel()?, channel()?];
        let ports = [
            ("out", out.1),
            ("err", err.1),
            ("status", status.1),
            ("control", control.1),
        ];
        let mut command = self.command();
        for (name, theirs) in &ports {
            let channel = format!("socket,id={name},fd={}", inherited(theirs)?);
            let port = format!("virtserialport,chardev={name},name={name}");
            command.args(["-chardev", &channel, "-device", &port]);
        }
        if let Some(wire) = &self.network {
            let wire = inherited(wire)?;
            let network = format!("dgram,id=wire,local.type=fd,local.str={wire}");
            let address = format!("52:54:00:4d:00:{:02x}", self.number);
            let device = format!("virtio-net-pci,netdev=wire,mac={address},romfile=");
            command.args(["-netdev", &network, "-device", &device]);
        }
        let image = format!("/dev/fd/{}", inherited(&self.image.file)?);
        command.args(["-initrd", &image]);
        // Inherited ends are closed here before another machine starts. The reader would never see
        // a channel close if another process still held an end.
        let mut child = command
            .spawn()
            .map_err(Error::system("start setpriv with QEMU"))?;
        let complaints = child.stderr.take().map(|mut it| {
            thread::spawn(move || {
                let mut said = Vec::new();
                // A read error leaves nothing to report.
                let _ = it.read_to_end(&mut said);
                String::from_utf8_lossy(&said).trim().to_owned()
            })
        });
        Ok(RunningMachine {
            child,
            complaints,
            was_asked_to_end: false,
            folder: self.folder,
            out: out.0,
            err: err.0,
            status: status.0,
            control: control.0,
        })
    }

    fn command(&self) -> Command {
        // The machine must not outlive this process, however this process ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none"]);
        match self.accelerator {
            // Five levels of page tables would only make each walk longer.
            Accelerator::Tcg => {
                command.args(["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"])
            }
            Accelerator::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        };
        command.args(["-smp", &self.cpus.to_string(), "-m", self.memory]);
        command.arg("-kernel").arg(self.kernel);
        command.args(["-append", KERNEL_ARGUMENTS]);
        let mut log = OsString::from("file:");
        log.push(option_value(&self.folder.join(KERNEL_LOG)));
        command.arg("-serial").arg(log);

        let shared = [
            ("root", Path::new("/"), ",readonly=on"),
            ("folder", self.folder, ""),
        ];
        for (tag, path, more) in shared {
            let mut files = OsString::from(format!("local,id={tag},path="));
            files.push(option_value(path));
            files.push(format!(",security_model=none,multidevs=remap{more}"));
            let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
            command.arg("-fsdev").arg(files).args(["-device", &device]);
        }
        command.args(["-device", "virtio-serial-pci"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl RunningMachine<'_> {
    /// Ends the machine at once, as if its power were cut. Returns the output of QEMU.
    pub(crate) fn end(&mut self) -> String {
        // A machine that ended before cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let complaints = self.complaints.take().map(JoinHandle::join);
        complaints.and_then(Result::ok).unwrap_or_default()
    }

    /// Stops the machine where it is, or lets it continue.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).map_err(Error::system("signal the machine"))
    }
}

impl Drop for RunningMachine<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Our end, and the machine's.
fn channel() -> Result<(UnixStream, OwnedFd), Error> {
    let ends = UnixStream::pair();
    let (ours, theirs) = ends.map_err(Error::system::<io::Error>("make a channel"))?;
    Ok((ours, theirs.into()))
}

/// Lets the next program inherit `descriptor`. Returns its number there.
fn inherited(descriptor: &impl std::os::fd::AsFd) -> Result<RawFd, Error> {
    let kept = fcntl_setfd(descriptor, FdFlags::empty());
    kept.map_err(Error::system("hand a channel to the machine"))?;
    Ok(descriptor.as_fd().as_raw_fd())
}
