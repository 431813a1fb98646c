//! The start of a guest: its two scripts, its own settings, and the command with its environment
//! here.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid, getgroups};

use super::Error;
use super::image::GuestFile;
use super::ssh::Ssh;
use super::words::quoted;
use crate::tool::program_path;

/// The variables that tell the command the folder it may write to, and the port to end a host.
const FOLDER_VARIABLE: &str = "VM_FOLDER";
const CONTROL_VARIABLE: &str = "VM_CONTROL";
const CONTROL: &str = "/run/vm/port.control";

/// The prefixes of the variables that are handed on.
const PREFIXES: [&str; 3] = ["HYDRANT_", "RUST_", "LC_"];

/// The variables that are handed on: the user's name and preferences.
const NAMES: [&str; 8] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ",
];

/// A command with its environment.
#[derive(Clone, Debug)]
pub(crate) struct GuestCommand {
    words: Vec<OsString>,
    folder: PathBuf,
    variables: Vec<(OsString, OsString)>,
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl GuestCommand {
    /// `words`, as the current user would run them here and now.
    pub(crate) fn from_here(
        words: &[OsString],
        variables: &[String],
    ) -> Result<GuestCommand, Error> {
        let folder = env::current_dir().map_err(Error::system("find the current folder"))?;
        let groups = getgroups().map_err(Error::system("list the user's groups"))?;
        let handed_on = |name: &OsStr| is_handed_on(name, variables);
        Ok(GuestCommand {
            words: words.to_vec(),
            folder,
            variables: env::vars_os().filter(|(name, _)| handed_on(name)).collect(),
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            groups: groups.iter().map(|it| it.as_raw()).collect(),
        })
    }

    /// The script that runs the command in the guest. The guest's folder is `shared`.
    fn script(&self, shared: &Path) -> Vec<u8> {
        let mut script = b"cd ".to_vec();
        script.extend(quoted(self.folder.as_os_str()));
        script.extend(b" || exit 125\nexec ");
        if self.user != 0 {
            let groups: Vec<_> = self.groups.iter().map(u32::to_string).collect();
            let groups = if groups.is_empty() {
                "--clear-groups".to_owned()
            } else {
                format!("--groups {}", groups.join(","))
            };
            let (user, group) = (self.user, self.group);
            script.extend(
                format!("/usr/bin/setpriv --reuid {user} --regid {group} {groups} ").bytes(),
            );
        }
        script.extend(b"/usr/bin/env -i");
        let ours = [
            (FOLDER_VARIABLE.into(), shared.as_os_str().to_owned()),
            (CONTROL_VARIABLE.into(), CONTROL.into()),
        ];
        for (name, value) in self.variables.iter().chain(&ours) {
            let assignment = [name.as_bytes(), value.as_bytes()].join(&b'=');
            script.push(b' ');
            script.extend(quoted(OsStr::from_bytes(&assignment)));
        }
        for word in &self.words {
            script.push(b' ');
            script.extend(quoted(word));
        }
        script.push(b'\n');
        script
    }
}

fn is_handed_on(name: &OsStr, variables: &[String]) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NAMES.contains(&name)
        || variables.iter().any(|it| it == name)
}

/// One guest among others, or alone.
pub(crate) struct Guest<'a> {
    /// Its number: 1, or also 2.
    pub(crate) number: usize,
    /// The number of its RDMA devices; two only if it is alone.
    pub(crate) devices: u32,
    /// The folder that it may write to, under the guest's path.
    pub(crate) folder: &'a Path,
    /// The remote shell from one guest to the other, where there are two.
    pub(crate) ssh: Option<&'a Ssh>,
}

impl Guest<'_> {
    /// The files of its initramfs. The first guest runs `command`.
    pub(crate) fn entries(&self, command: &GuestCommand) -> Vec<GuestFile> {
        let scripts = [
            ("init", include_str!("init.sh")),
            ("vm/start.sh", include_str!("start.sh")),
        ];
        let scripts = scripts.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        let mut entries = scripts.to_vec();
        entries.push(("vm/settings".into(), self.settings(command.user)));
        entries.push(("vm/command".into(), command.script(self.folder)));
        entries.extend(self.ssh.iter().flat_map(|it| it.entries().iter().cloned()));
        entries
    }

    /// The settings that the scripts name, as assignments of a shell.
    fn settings(&self, user: u32) -> Vec<u8> {
        let number = self.number;
        // A guest alone makes both ends of a network of its own.
        let device = if self.ssh.is_some() { "eth0" } else { "veth0" };
        let values: [(&str, OsString); 10] = [
            ("host", format!("host{number}").into()),
            ("address", format!("10.77.0.{number}").into()),
            ("device", device.into()),
            ("devices", self.devices.to_string().into()),
            ("folder", self.folder.into()),
            ("ip", program_path("ip").into()),
            ("rdma", program_path("rdma").into()),
            ("user", user.to_string().into()),
            (
                "sshd",
                self.ssh.map(|it| (&it.server).into()).unwrap_or_default(),
            ),
            (
                "libraries",
                self.ssh
                    .map(|it| (&it.libraries).into())
                    .unwrap_or_default(),
            ),
        ];
        let assigned = values.map(|(name, value)| {
            let value = quoted(&value);
            [name.as_bytes(), b"=", &value, b"\n"].concat()
        });
        assigned.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(user: u32) -> GuestCommand {
        GuestCommand {
            words: ["echo", "it's\ntwo lines"].map(OsString::from).to_vec(),
            folder: "/a folder".into(),
            variables: vec![("RUST_LOG".into(), "a b".into())],
            user,
            group: user,
            groups: vec![4, 7],
        }
    }

    #[test]
    fn the_script_restores_the_surroundings_of_the_command() {
        let script = String::from_utf8(command(0).script(Path::new("/shared"))).unwrap();
        let expected = "\
cd '/a folder' || exit 125
exec /usr/bin/env -i 'RUST_LOG=a b' 'VM_FOLDER=/shared' 'VM_CONTROL=/run/vm/port.control' 'echo' 'it'\\''s
two lines'
";
        assert_eq!(script, expected);
    }

    #[test]
    fn another_user_than_root_stays_that_user() {
        let script = String::from_utf8(command(1000).script(Path::new("/shared"))).unwrap();
        let change = "exec /usr/bin/setpriv --reuid 1000 --regid 1000 --groups 4,7 /usr/bin/env";
        assert!(script.contains(change), "{script}");
    }

    #[test]
    fn only_some_variables_are_handed_on() {
        let more = ["EXTRA".to_owned()];
        for name in ["HYDRANT_M", "RUST_BACKTRACE", "HOME", "EXTRA"] {
            assert!(is_handed_on(OsStr::new(name), &more), "{name}");
        }
        for name in ["LD_LIBRARY_PATH", "EXTRA_TOO", "CARGO"] {
            assert!(!is_handed_on(OsStr::new(name), &more), "{name}");
        }
    }

    #[test]
    fn settings_survive_a_shell() {
        let guest = Guest {
            number: 2,
            devices: 1,
            folder: Path::new("/it's a\nfolder"),
            ssh: None,
        };
        let mut script = guest.settings(0);
        script.extend(b"printf %s \"$host $device $sshd $folder\"");
        let shell = std::process::Command::new("sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .output();
        let said = String::from_utf8(shell.unwrap().stdout).unwrap();
        assert_eq!(said, "host2 veth0  /it's a\nfolder");
    }
}
