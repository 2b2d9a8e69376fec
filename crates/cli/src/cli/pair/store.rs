// SPDX-License-Identifier: Apache-2.0
//! The files that a pairing writes. They are complete on the disk, under temporary names, before the two
//! ends agree; the agreement only renames them. A signal before the agreement removes the files.

use super::folder::Folder;
use crate::cli::Failure;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline::accounts::Owner;

/// Exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Files that a signal removes.
static TEMPORARY_FILES: Mutex<Vec<(Arc<Folder>, OsString)>> = Mutex::new(Vec::new());

fn lock_temporary_files() -> MutexGuard<'static, Vec<(Arc<Folder>, OsString)>> {
    TEMPORARY_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program on SIGINT and SIGTERM, with no file of a pairing left. Files that are being put
/// in place are all put in place first.
pub fn end_on_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let work = move || {
        if signals.forever().next().is_some() {
            let files = lock_temporary_files();
            files.iter().for_each(|(folder, name)| drop(folder.remove(name)));
            let _ = writeln!(io::stderr(), "\nended by a signal");
            std::process::exit(EXIT_INTERRUPTED);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(work).map(drop)
}

/// A complete file under a temporary name, in the folder of its place.
struct Pending {
    folder: Arc<Folder>,
    /// The name that it will have.
    name: OsString,
    /// Text of the file to replace, as it was read; `None` if no file may have this name.
    old: Option<String>,
}

/// Files that are complete, and not yet in place.
#[derive(Default)]
pub struct PreparedFiles(Vec<Pending>);

impl Drop for PreparedFiles {
    fn drop(&mut self) {
        let mut files = lock_temporary_files();
        for pending in &self.0 {
            let temporary = pending.temporary_name();
            let _ = pending.folder.remove(&temporary);
            files.retain(|(folder, name)| {
                !Arc::ptr_eq(folder, &pending.folder) || *name != temporary
            });
        }
    }
}

fn write_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: cannot be written: {error}", path.display()))
}

/// Joins the parts of a name.
fn joined_name(parts: [&OsStr; 3]) -> OsString {
    let mut name = OsString::new();
    parts.iter().for_each(|part| name.push(part));
    name
}

/// The name of the copy of a file that was replaced.
fn backup_name(name: &OsStr) -> OsString {
    joined_name(["".as_ref(), name, "~".as_ref()])
}

impl PreparedFiles {
    /// Writes a file under a temporary name. `old` is the text that it replaces, `None` if there is none. A
    /// file that exists keeps its mode and owner.
    pub fn add(
        &mut self,
        (folder, name): (&Arc<Folder>, &OsStr),
        text: &str,
        old: Option<String>,
        (mode, owner): (u32, Option<Owner>),
    ) -> Result<(), Failure> {
        folder.make()?;
        let pending = Pending { folder: folder.clone(), name: name.to_owned(), old };
        let (temporary, place) = (pending.temporary_name(), pending.target_path());
        let write = || {
            // Such a file may be left from a pairing that was killed.
            match folder.remove(&temporary) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            lock_temporary_files().push((folder.clone(), temporary.clone()));
            let mut file = folder.create(&temporary)?;
            file.write_all(text.as_bytes())?;
            let known = folder.mode_and_owner(name).ok();
            let (mode, owner) = known.map_or((mode, owner), |(mode, owner)| (mode, Some(owner)));
            let own = file.metadata()?;
            if let Some((user, group)) = owner.filter(|it| *it != (own.uid(), own.gid())) {
                fchown(&file, Some(user), Some(group))?;
            }
            file.set_permissions(Permissions::from_mode(mode))?;
            file.sync_all()
        };
        let written = write();
        self.0.push(pending);
        written.map_err(|error| write_failure(&place, &error))
    }

    /// Puts one file in place, and removes the others.
    pub fn put_in_place_only(
        mut self,
        (folder, name): (&Arc<Folder>, &OsStr),
    ) -> Result<PlacedFiles, Failure> {
        let mut kept = PreparedFiles::default();
        let is_it = |it: &Pending| Arc::ptr_eq(&it.folder, folder) && it.name == name;
        if let Some(at) = self.0.iter().position(is_it) {
            kept.0.push(self.0.remove(at));
        }
        kept.put_in_place()
    }

    /// Puts all files in place.
    pub fn put_in_place(self) -> Result<PlacedFiles, Failure> {
        // A signal waits until all files are in place.
        let _files = lock_temporary_files();
        let mut placed = PlacedFiles::default();
        for pending in &self.0 {
            if let Err(error) = pending.put_in_place() {
                placed.undo();
                return Err(write_failure(&pending.target_path(), &error));
            }
            let Pending { folder, name, old } = pending;
            placed.0.push((folder.clone(), name.clone(), old.is_some()));
        }
        Ok(placed)
    }
}

impl Pending {
    fn target_path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    /// The name that the file has until it is put in place.
    fn temporary_name(&self) -> OsString {
        joined_name([".".as_ref(), &self.name, ".pairing".as_ref()])
    }

    fn put_in_place(&self) -> io::Result<()> {
        let (folder, name, temporary) = (&self.folder, &self.name, self.temporary_name());
        match &self.old {
            Some(old) => {
                if folder.read(name)? != old.as_bytes() {
                    return Err(io::Error::other("the file has changed since the pairing began"));
                }
                let copy = backup_name(name);
                let _ = folder.remove(&copy);
                folder.link(name, &copy)?;
                folder.rename(&temporary, name)?;
            }
            None => {
                // In contrast to a rename, this fails if there is a file by now.
                folder.link(&temporary, name)?;
                folder.remove(&temporary)?;
            }
        }
        // The file is in place by now. If the sync fails, a power cut may still undo the change.
        let _ = folder.sync();
        Ok(())
    }
}

/// Files that were put in place. The flag says whether the file replaced another.
#[derive(Default)]
pub struct PlacedFiles(Vec<(Arc<Folder>, OsString, bool)>);

impl PlacedFiles {
    /// Restores the replaced files, and removes the new ones.
    pub fn undo(&self) {
        for (folder, name, replaced) in self.0.iter().rev() {
            let _ = match replaced {
                true => folder.rename(&backup_name(name), name),
                false => folder.remove(name),
            };
        }
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().map(|(folder, name, _)| folder.path_of(name))
    }

    /// The paths of the backups of replaced files.
    pub fn backup_paths(&self) -> impl Iterator<Item = PathBuf> {
        let replaced = self.0.iter().filter(|(.., replaced)| *replaced);
        replaced.map(|(folder, name, _)| folder.path_of(&backup_name(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FILE: &str = "robot.yaml";
    const KEY: &str = "robot.key";
    const PLAIN: (u32, Option<Owner>) = (0o644, None);

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_together_and_the_old_one_stays_as_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let [file, key] = [FILE, KEY].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let held = Folder::open_locked(folder.path(), &[]).unwrap();
        let prepare = || {
            let mut prepared = PreparedFiles::default();
            prepared.add((&held, KEY.as_ref()), "secret", None, (0o600, None)).unwrap();
            prepared.add((&held, FILE.as_ref()), "new", Some("old".into()), PLAIN).unwrap();
            prepared
        };
        drop(prepare());
        assert_eq!(names(folder.path()), ["robot.yaml"], "nothing is left");
        let placed = prepare().put_in_place().unwrap();
        assert_eq!(names(folder.path()), ["robot.key", "robot.yaml", "robot.yaml~"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&file), mode(&key)), (0o640, 0o600));
        placed.undo();
        assert_eq!(names(folder.path()), ["robot.yaml"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn a_file_that_changed_is_not_replaced_and_other_files_are_restored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "old").unwrap();
        let held = Folder::open_locked(folder.path(), &[]).unwrap();
        let mut prepared = PreparedFiles::default();
        prepared.add((&held, KEY.as_ref()), "secret", None, (0o600, None)).unwrap();
        prepared.add((&held, FILE.as_ref()), "new", Some("old".into()), PLAIN).unwrap();
        fs::write(&file, "edited").unwrap();
        assert!(prepared.put_in_place().is_err());
        assert_eq!(names(folder.path()), ["robot.yaml"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "edited");
        let mut prepared = PreparedFiles::default();
        prepared.add((&held, FILE.as_ref()), "new", None, PLAIN).unwrap();
        assert!(prepared.put_in_place().is_err(), "there is a file by now");
    }
}
