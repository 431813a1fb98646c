//! What a guest is told: the two scripts it starts with, what differs from one
//! guest to the next, and the command with the surroundings it has here.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid, getgroups};

use super::Error;
use super::image::Entry;
use super::ssh::Ssh;
use super::words::quoted;
use crate::tool::found;

/// Where the command finds what it may write to, and whom it may ask to end a host.
const FOLDER_VARIABLE: &str = "VM_FOLDER";
const CONTROL_VARIABLE: &str = "VM_CONTROL";
const CONTROL: &str = "/run/vm/port.control";

/// Variables handed on whose names begin so.
const PREFIXES: [&str; 3] = ["HYDRANT_", "RUST_", "LC_"];

/// Variables handed on: who the user is and what he is used to.
const NAMES: [&str; 8] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ",
];

/// A command with its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    words: Vec<OsString>,
    folder: PathBuf,
    variables: Vec<(OsString, OsString)>,
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Command {
    /// `words`, as they would be run here and now by the user we are.
    pub(crate) fn from_here(words: &[OsString], variables: &[String]) -> Result<Command, Error> {
        let folder = env::current_dir().map_err(Error::system("find the current folder"))?;
        let groups = getgroups().map_err(Error::system("list the user's groups"))?;
        let handed_on = |name: &OsStr| is_handed_on(name, variables);
        Ok(Command {
            words: words.to_vec(),
            folder,
            variables: env::vars_os().filter(|(name, _)| handed_on(name)).collect(),
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            groups: groups.iter().map(|it| it.as_raw()).collect(),
        })
    }

    /// The script that runs it in the guest, whose folder is `shared`.
    fn script(&self, shared: &Path) -> Vec<u8> {
        let mut script = b"cd ".to_vec();
        script.extend(quoted(self.folder.as_os_str()));
        script.extend(b" || exit 125\nexec ");
        if self.user != 0 {
            let groups: Vec<_> = self.groups.iter().map(u32::to_string).collect();
            let groups = match groups.is_empty() {
                true => "--clear-groups".to_owned(),
                false => format!("--groups {}", groups.join(",")),
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
    /// Which it is: 1, or 2 as well.
    pub(crate) number: usize,
    /// How many RDMA devices it has; two only if it is alone.
    pub(crate) devices: u32,
    /// The folder it may write to, as it sees it.
    pub(crate) folder: &'a Path,
    /// The way from one guest to the other, where there are two.
    pub(crate) ssh: Option<&'a Ssh>,
}

impl Guest<'_> {
    /// What its initramfs holds. `command` is run by the first guest.
    pub(crate) fn entries(&self, command: &Command) -> Vec<Entry> {
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

    /// What the scripts ask for by name, as assignments of a shell.
    fn settings(&self, user: u32) -> Vec<u8> {
        let number = self.number;
        // A guest alone makes a network of its own, both ends of it.
        let device = if self.ssh.is_some() { "eth0" } else { "veth0" };
        let values: [(&str, OsString); 10] = [
            ("host", format!("host{number}").into()),
            ("address", format!("10.77.0.{number}").into()),
            ("device", device.into()),
            ("devices", self.devices.to_string().into()),
            ("folder", self.folder.into()),
            ("ip", found("ip").into()),
            ("rdma", found("rdma").into()),
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

    fn command(user: u32) -> Command {
        Command {
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
