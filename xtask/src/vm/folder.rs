//! The folders that machines may write to, one for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use super::Error;
use crate::command::target_folder;

/// The kernel's log, in the folder.
pub(crate) const KERNEL_LOG: &str = "kernel.log";

/// A folder that the guest sees under the path of the first machine's folder here.
pub(crate) struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    /// `wanted`, created if it is missing, or a fresh temporary folder.
    pub(crate) fn new(wanted: Option<&Path>) -> Result<Folder, Error> {
        let fresh = || {
            target_folder()
                .join("vm/run")
                .join(process::id().to_string())
        };
        let path = wanted.map_or_else(fresh, Path::to_owned);
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        let path = path.canonicalize().map_err(Error::file("find", &path))?;
        Ok(Folder {
            path,
            is_ours: wanted.is_none(),
        })
    }

    /// The folder of a further machine, beside this one: the files of two hosts must not collide.
    pub(crate) fn of_host(&self, number: usize) -> Result<Folder, Error> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".host{number}"));
        let path = PathBuf::from(path);
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        Ok(Folder {
            path,
            is_ours: self.is_ours,
        })
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a temporary folder that nobody wrote to, after a machine that ended well.
    pub(crate) fn close(self) {
        if !self.is_ours {
            return;
        }
        let log = self.path.join(KERNEL_LOG);
        let is_log = |entry: fs::DirEntry| entry.file_name() == KERNEL_LOG;
        let entries = fs::read_dir(&self.path).map(|it| it.flatten().all(is_log));
        if matches!(entries, Ok(true)) {
            // A folder left behind takes a little room and does no harm.
            let _ = fs::remove_file(log).and_then(|()| fs::remove_dir(&self.path));
        } else {
            eprintln!(
                "vm: the files of the command are in {}",
                self.path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_ours_with_nothing_but_the_log_goes() {
        let parent = target_folder().join("vm/run");
        let given = parent.join(format!("given-{}", process::id()));
        let folder = Folder::new(Some(&given)).unwrap();
        folder.close();
        assert!(given.is_dir());
        fs::remove_dir(&given).unwrap();

        let ours = Folder::new(None).unwrap();
        let path = ours.path().to_owned();
        fs::write(path.join(KERNEL_LOG), "").unwrap();
        fs::write(path.join("result"), "").unwrap();
        ours.close();
        assert!(path.join("result").is_file());

        fs::remove_file(path.join("result")).unwrap();
        Folder::new(None).unwrap().close();
        assert!(!path.exists());
    }
}
