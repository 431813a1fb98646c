//! One virtual machine: the QEMU process and the channels to it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::io::{FdFlags, fcntl_setfd};

use super::folder::KERNEL_LOG;
use super::image::Image;
use super::kernel::Kernel;
use super::words::option_value;
use super::{Accelerator, Error};

/// What the kernel is told: to log where QEMU writes it down, to end on a panic, and
/// to leave out what takes time at every start or guards secrets nobody has here.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 8250.nr_uarts=1 \
    mitigations=off audit=0 apparmor=0 cryptomgr.notests \
    random.trust_cpu=on rcupdate.rcu_expedited=1";

/// What a machine is made of.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'a> {
    /// What it boots.
    pub(crate) kernel: &'a Kernel,
    /// What it starts with.
    pub(crate) image: &'a Image,
    /// What it may write to, of the host's.
    pub(crate) folder: &'a Path,
    /// How its processors are made.
    pub(crate) accelerator: Accelerator,
    /// How many of them.
    pub(crate) cpus: u32,
    /// Its memory, as QEMU has it.
    pub(crate) memory: &'a str,
}

/// A machine that runs. It is killed when this is dropped, and when we die.
pub(crate) struct Running {
    child: Child,
    complaints: Option<JoinHandle<String>>,
    /// What the command writes to standard output.
    pub(crate) out: UnixStream,
    /// What it writes to standard error.
    pub(crate) err: UnixStream,
    /// How it ended, in the end.
    pub(crate) status: UnixStream,
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

impl Machine<'_> {
    /// Starts it. To be called by a thread that stays: the machine dies with it.
    pub(crate) fn start(&self) -> Result<Running, Error> {
        let [out, err, status] = [channel()?, channel()?, channel()?];
        // QEMU is to have these three and the image, and no other program anything.
        let handed = [
            out.1.as_fd(),
            err.1.as_fd(),
            status.1.as_fd(),
            self.image.file.as_fd(),
        ];
        for descriptor in handed {
            let kept = fcntl_setfd(descriptor, FdFlags::empty());
            kept.map_err(Error::system("hand a channel to the machine"))?;
        }
        let mut command = self.command(handed.map(|it| it.as_raw_fd()));
        let started = command.spawn();
        for descriptor in handed {
            let closed = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
            closed.map_err(Error::system("keep a channel to ourselves"))?;
        }
        let mut child = started.map_err(Error::system("start setpriv with QEMU"))?;
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
            out: out.0,
            err: err.0,
            status: status.0,
        })
    }

    fn command(&self, [out, err, status, image]: [i32; 4]) -> Command {
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

        command.arg("-kernel").arg(&self.kernel.image);
        command.args(["-initrd", &format!("/dev/fd/{image}")]);
        command.args(["-append", KERNEL_ARGUMENTS]);
        let mut log = std::ffi::OsString::from("file:");
        log.push(option_value(&self.folder.join(KERNEL_LOG)));
        command.arg("-serial").arg(log);

        for (tag, path, more) in [
            ("root", Path::new("/"), ",readonly=on"),
            ("folder", self.folder, ""),
        ] {
            let mut files = std::ffi::OsString::from(format!("local,id={tag},path="));
            files.push(option_value(path));
            files.push(format!(",security_model=none,multidevs=remap{more}"));
            command.arg("-fsdev").arg(files);
            let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
            command.args(["-device", &device]);
        }

        command.args(["-device", "virtio-serial-pci"]);
        for (name, descriptor) in [("out", out), ("err", err), ("status", status)] {
            let channel = format!("socket,id={name},fd={descriptor}");
            let port = format!("virtserialport,chardev={name},name={name}");
            command.args(["-chardev", &channel, "-device", &port]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Running {
    /// Ends it at once, as if its power were cut, and gives back what QEMU had to say.
    pub(crate) fn end(&mut self) -> String {
        // One that ended before cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let complaints = self.complaints.take().map(JoinHandle::join);
        complaints.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Our end, and the machine's.
fn channel() -> Result<(UnixStream, OwnedFd), Error> {
    let (ours, theirs): (UnixStream, UnixStream) =
        UnixStream::pair().map_err(Error::system::<io::Error>("make a channel"))?;
    Ok((ours, theirs.into()))
}
