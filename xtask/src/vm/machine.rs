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
use super::image::Image;
use super::words::option_value;
use super::{Accelerator, Error};

/// What the kernel is told: to log where QEMU writes it down, to end on a panic, and
/// to leave out what takes time at every start or guards secrets nobody has here.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 8250.nr_uarts=1 \
    mitigations=off tsc=reliable audit=0 apparmor=0 cryptomgr.notests \
    random.trust_cpu=on rcupdate.rcu_expedited=1";

/// What a machine is made of.
pub(crate) struct Machine<'a> {
    /// Which it is, of those that belong together.
    pub(crate) number: usize,
    /// The kernel it boots.
    pub(crate) kernel: &'a Path,
    /// What it starts with.
    pub(crate) image: Image,
    /// What it may write to, of the host's.
    pub(crate) folder: &'a Path,
    /// Its end of the wire, if there is one.
    pub(crate) network: Option<OwnedFd>,
    /// How its processors are made.
    pub(crate) accelerator: Accelerator,
    /// How many of them.
    pub(crate) cpus: u32,
    /// Its memory, as QEMU has it.
    pub(crate) memory: &'a str,
}

/// A machine that runs. It is killed when this is dropped, and when we die.
pub(crate) struct Running<'a> {
    child: Child,
    complaints: Option<JoinHandle<String>>,
    /// Whether its end is what the command wants.
    pub(crate) was_asked_to_end: bool,
    /// Where its kernel's log is.
    pub(crate) folder: &'a Path,
    /// What the command writes to standard output.
    pub(crate) out: UnixStream,
    /// What it writes to standard error.
    pub(crate) err: UnixStream,
    /// How it ended, in the end.
    pub(crate) status: UnixStream,
    /// What the command asks of us.
    pub(crate) control: UnixStream,
}

/// Kvm where it can be hoped to work: nested without the processor's help, its
/// device is there and whoever uses it hangs.
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

/// A wire between two machines: its two ends.
pub(crate) fn network() -> Result<[OwnedFd; 2], Error> {
    let ends = UnixDatagram::pair();
    let (one, other) = ends.map_err(Error::system::<io::Error>("make a wire"))?;
    Ok([one.into(), other.into()])
}

impl<'a> Machine<'a> {
    /// Starts it. To be called by a thread that stays: the machine dies with it.
    pub(crate) fn start(self) -> Result<Running<'a>, Error> {
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
        // What is inherited is closed here before another machine starts: an end of a
        // channel that somebody else holds would never be seen to close.
        let mut child = command
            .spawn()
            .map_err(Error::system("start setpriv with QEMU"))?;
        let complaints = child.stderr.take().map(|mut it| {
            thread::spawn(move || {
                let mut said = Vec::new();
                // What cannot be read cannot be told either.
                let _ = it.read_to_end(&mut said);
                String::from_utf8_lossy(&said).trim().to_owned()
            })
        });
        Ok(Running {
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
        // It must not outlive us, whatever ends us.
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

impl Running<'_> {
    /// Ends it at once, as if its power were cut, and gives back what QEMU had to say.
    pub(crate) fn end(&mut self) -> String {
        // One that ended before cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let complaints = self.complaints.take().map(JoinHandle::join);
        complaints.and_then(Result::ok).unwrap_or_default()
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).map_err(Error::system("signal the machine"))
    }
}

impl Drop for Running<'_> {
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

/// Lets the next program have `descriptor`, and gives back its number there.
fn inherited(descriptor: &impl std::os::fd::AsFd) -> Result<RawFd, Error> {
    let kept = fcntl_setfd(descriptor, FdFlags::empty());
    kept.map_err(Error::system("hand a channel to the machine"))?;
    Ok(descriptor.as_fd().as_raw_fd())
}
