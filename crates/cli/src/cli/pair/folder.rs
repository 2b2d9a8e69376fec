// SPDX-License-Identifier: Apache-2.0
//! A folder in which a pairing writes. It is open and locked before anything is read, so that no other
//! pairing writes there meanwhile. A folder that replaces it at the same path receives nothing. The kernel
//! ends the lock with the process.

use crate::cli::Failure;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The kernel's list of all file locks of the machine.
const LOCKS: &str = "/proc/locks";
/// Maximum bytes that are read of [`LOCKS`].
const MAX_LOCKS: u64 = 1 << 20;

/// Name of a file created to test whether the folder is writable.
const PROBE: &str = ".tautline-pair";

/// A folder that is open and locked.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder, or the nearest one above it that exists.
    held: File,
    /// Names of the folders below `held` that do not exist yet. They are made late, so that a pairing that
    /// ends early leaves no folder.
    missing: Vec<OsString>,
    made: OnceLock<File>,
}

fn open(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(at, path, flags, Mode::empty())?.into())
}

impl Folder {
    /// Opens and locks a folder, or the nearest existing one above it. Folders in `held` are already locked
    /// by this process.
    pub fn open_locked(path: &Path, held: &[Arc<Self>]) -> Result<Arc<Self>, Failure> {
        let failed = |error: io::Error| cannot_write(path, &error);
        let mut missing = Vec::new();
        let mut above = path;
        let folder = loop {
            let named = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match (open(fs::CWD, named), above.file_name(), above.parent()) {
                (Err(error), Some(name), Some(parent))
                    if error.kind() == io::ErrorKind::NotFound =>
                {
                    missing.insert(0, name.to_owned());
                    above = parent;
                }
                (opened, ..) => break opened.map_err(failed)?,
            }
        };
        let place = |it: &File| it.metadata().ok().map(|it| (it.dev(), it.ino()));
        if !held.iter().any(|it| place(&it.held) == place(&folder)) {
            lock(&folder, path)?;
        }
        let path = path.to_owned();
        let folder = Self { path, held: folder, missing, made: OnceLock::new() };
        folder.probe().map_err(|error| cannot_write(&folder.path, &error))?;
        Ok(Arc::new(folder))
    }

    /// Writes a file and removes it: permissions alone do not say whether files can be written.
    fn probe(&self) -> io::Result<()> {
        let probe = OsStr::new(PROBE);
        // The file may be left from a killed pairing: the lock says that no other pairing runs.
        let _ = self.remove(probe);
        self.create(probe)?;
        self.remove(probe)
    }

    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file, for people.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        if self.path == Path::new(".") { name.into() } else { self.path.join(name) }
    }

    /// Makes the folder if it is missing.
    pub fn make(&self) -> Result<(), Failure> {
        if self.missing.is_empty() || self.made.get().is_some() {
            return Ok(());
        }
        let make = || {
            let mut folder = self.held.try_clone()?;
            for name in &self.missing {
                match fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => folder = open(&folder, name)?,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(folder)
        };
        let folder = make().map_err(|error| cannot_write(&self.path, &error))?;
        lock(&folder, &self.path)?;
        let _ = self.made.set(folder);
        Ok(())
    }

    fn handle(&self) -> &File {
        self.made.get().unwrap_or(&self.held)
    }

    /// Reads a file.
    pub fn read(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut file: File = fs::openat(self.handle(), name, flags, Mode::empty())?.into();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map(|_| bytes)
    }

    /// Creates a file that does not exist, for this user alone.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(fs::openat(self.handle(), name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// The mode, user and group of a file.
    pub fn mode_and_owner(&self, name: &OsStr) -> io::Result<(u32, (u32, u32))> {
        let known = fs::statat(self.handle(), name, AtFlags::empty())?;
        Ok((known.st_mode & 0o7777, (known.st_uid, known.st_gid)))
    }

    /// Removes a file.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(self.handle(), name, AtFlags::empty())?)
    }

    /// Gives a file another name. A file that has this name is replaced.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(self.handle(), from, self.handle(), to)?)
    }

    /// Gives a file a further name. Fails if a file has this name.
    pub fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(fs::linkat(self.handle(), from, self.handle(), to, AtFlags::empty())?)
    }

    /// Waits until the folder's entries are on the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.handle().sync_all()
    }
}

fn lock(folder: &File, path: &Path) -> Result<(), Failure> {
    match fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let (path, process) = (path.display(), holder(folder));
            let process = process.map_or(String::new(), |id| format!(" (process {id})"));
            Err(Failure::new(format!(
                "another 'tautline pair'{process} uses {path}. Nothing was written. Wait until that \
                 pairing ends, or end it with Ctrl-C"
            )))
        }
        Err(error) => Err(cannot_write(path, &error.into())),
    }
}

/// The process that has the lock, if the kernel names it.
fn holder(folder: &File) -> Option<u32> {
    let own = folder.metadata().ok()?;
    let (major, minor) = (fs::major(own.dev()), fs::minor(own.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", own.ino());
    let mut locks = String::new();
    File::open(LOCKS).ok()?.take(MAX_LOCKS).read_to_string(&mut locks).ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, found, ..] = words[..] else { return None };
        process.parse().ok().filter(|_| found == place)
    })
}

fn cannot_write(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::new(format!(
        "{folder}: this user cannot write files there ({error}). Nothing was written. Either run the \
         command as root (sudo tautline pair ...), or keep the file elsewhere (--file robot.yaml)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_pairing_in_a_folder_names_the_process_of_the_first() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::open_locked(place.path(), &[]).unwrap();
        let error = Folder::open_locked(place.path(), &[]).unwrap_err().text;
        let named = format!("(process {}) uses {}", std::process::id(), place.path().display());
        assert!(error.contains(&named), "{error}");
        // The key of this pairing may be in the same folder by another path.
        let known = [first];
        assert!(Folder::open_locked(&place.path().join("."), &known).is_ok());
        let [first] = known;
        drop(first);
        assert!(Folder::open_locked(place.path(), &[]).is_ok());
    }

    #[test]
    fn a_missing_folder_is_locked_before_and_after_its_creation() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("etc/tautline");
        let first = Folder::open_locked(&path, &[]).unwrap();
        assert!(Folder::open_locked(&path, &[]).is_err());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        first.make().unwrap();
        first.create("a".as_ref()).unwrap();
        assert!(path.join("a").exists());
        assert!(
            Folder::open_locked(&path, &[]).unwrap_err().text.contains("another 'tautline pair'")
        );
    }

    #[test]
    fn a_folder_that_replaces_the_locked_one_receives_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (path, other) = (place.path().join("own"), place.path().join("other"));
        [&path, &other].iter().for_each(|it| std::fs::create_dir(it).unwrap());
        let folder = Folder::open_locked(&path, &[]).unwrap();
        std::fs::rename(&path, place.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        folder.create("a".as_ref()).unwrap();
        folder.rename("a".as_ref(), "b".as_ref()).unwrap();
        assert!(place.path().join("moved/b").exists() && !other.join("b").exists());
    }
}
