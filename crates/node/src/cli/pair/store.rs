// SPDX-License-Identifier: Apache-2.0
//! The files that a pairing writes. They are complete on the disk before the two ends agree, under
//! names of their own; the agreement only renames them. A signal before that removes them.

use crate::cli::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tautline_node::unit::Owner;

/// Exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Files that a signal removes.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program on SIGINT and SIGTERM, with no file of a pairing left. Files that are being put
/// in place are all put in place first.
pub fn end_on_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let work = move || {
        if signals.forever().next().is_some() {
            let files = temporary();
            files.iter().for_each(|file| drop(fs::remove_file(file)));
            let _ = writeln!(io::stderr(), "\nended by a signal");
            std::process::exit(EXIT_INTERRUPTED);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(work).map(drop)
}

/// A file that waits beside its place.
struct Pending {
    temporary: PathBuf,
    place: PathBuf,
    /// The file that is replaced, as it was read; `None`: there must be none.
    old: Option<String>,
}

/// Files that are complete, and not yet in place.
#[derive(Default)]
pub struct Prepared(Vec<Pending>);

impl Drop for Prepared {
    fn drop(&mut self) {
        let mut files = temporary();
        for pending in &self.0 {
            let _ = fs::remove_file(&pending.temporary);
            files.retain(|file| *file != pending.temporary);
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: cannot be written: {error}", path.display()))
}

/// The name that a file has until it is put in place.
fn waiting_name(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.pairing"))
}

/// The copy of a file that was replaced.
pub fn copy_of(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!("{name}~"))
}

/// Says whether files can be written in a folder; creates it if it is missing and may be.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        // Only to see whether it can be made: a pairing that ends early leaves nothing.
        let parent = folder.parent().filter(|it| !it.as_os_str().is_empty());
        return check_folder(parent.unwrap_or(Path::new(".")));
    }
    let probe = folder.join(".tautline-pair");
    // Never through a link, and never a file that is there: others may write in this folder.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe) {
        Ok(_) => fs::remove_file(&probe),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(&probe)
            .and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe))
            .and_then(|_| fs::remove_file(&probe)),
        Err(error) => Err(error),
    }
}

impl Prepared {
    /// Writes a file beside its place. `old` is the text that it replaces, `None` if there is none.
    /// A file that exists keeps its mode and owner.
    pub fn add(
        &mut self,
        place: &Path,
        text: &str,
        old: Option<String>,
        (mode, owner): (u32, Option<Owner>),
    ) -> Result<(), Failure> {
        let waiting = waiting_name(place);
        let write = || {
            if let Some(folder) = place.parent().filter(|it| !it.as_os_str().is_empty()) {
                fs::create_dir_all(folder)?;
            }
            // That of a pairing which was killed.
            match fs::remove_file(&waiting) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            temporary().push(waiting.clone());
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&waiting)?;
            file.write_all(text.as_bytes())?;
            let known = fs::metadata(place).ok();
            let (mode, owner) = match &known {
                Some(known) => (known.mode() & 0o7777, Some((known.uid(), known.gid()))),
                None => (mode, owner),
            };
            let own = file.metadata()?;
            if let Some((user, group)) = owner.filter(|it| *it != (own.uid(), own.gid())) {
                fchown(&file, Some(user), Some(group))?;
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        };
        let written = write();
        let (temporary, place) = (waiting.clone(), place.to_owned());
        self.0.push(Pending { temporary, place: place.clone(), old });
        written.map_err(|error| failed(&place, &error))
    }

    /// Puts one file in place, and removes the others.
    pub fn put_in_place_only(mut self, place: &Path) -> Result<Placed, Failure> {
        let mut kept = Prepared::default();
        if let Some(at) = self.0.iter().position(|it| it.place == place) {
            kept.0.push(self.0.remove(at));
        }
        kept.put_in_place()
    }

    /// Puts all files in place.
    pub fn put_in_place(self) -> Result<Placed, Failure> {
        // A signal waits until this is done.
        let _files = temporary();
        let mut placed = Placed::default();
        for pending in &self.0 {
            if let Err(error) = pending.put_in_place() {
                placed.undo();
                return Err(failed(&pending.place, &error));
            }
            placed.0.push((pending.place.clone(), pending.old.is_some()));
        }
        Ok(placed)
    }
}

impl Pending {
    fn put_in_place(&self) -> io::Result<()> {
        match &self.old {
            Some(old) => {
                if fs::read(&self.place)? != old.as_bytes() {
                    return Err(io::Error::other("the file has changed since the pairing began"));
                }
                let copy = copy_of(&self.place);
                let _ = fs::remove_file(&copy);
                fs::hard_link(&self.place, &copy)?;
                fs::rename(&self.temporary, &self.place)?;
            }
            None => {
                // In contrast to a rename, this fails if there is a file by now.
                fs::hard_link(&self.temporary, &self.place)?;
                fs::remove_file(&self.temporary)?;
            }
        }
        let folder = self.place.parent().filter(|it| !it.as_os_str().is_empty());
        // The file is in place now, whether or not the folder can be read.
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// Files that were put in place, each with whether it replaced another.
#[derive(Default)]
pub struct Placed(Vec<(PathBuf, bool)>);

impl Placed {
    /// Restores the files of before.
    pub fn undo(&self) {
        for (place, replaced) in self.0.iter().rev() {
            let _ = match replaced {
                true => fs::rename(copy_of(place), place),
                false => fs::remove_file(place),
            };
        }
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(place, _)| place.as_path())
    }

    /// The copies of the files that were replaced.
    pub fn copies(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().filter(|(_, replaced)| *replaced).map(|(place, _)| copy_of(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let [file, key] = ["robot.yaml", "robot.key"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let prepare = || {
            let mut prepared = Prepared::default();
            prepared.add(&key, "secret", None, (0o600, None)).unwrap();
            prepared.add(&file, "new", Some("old".into()), PLAIN).unwrap();
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
    fn a_file_that_changed_meanwhile_is_not_replaced_and_the_others_are_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let [file, key] = ["robot.yaml", "robot.key"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        let mut prepared = Prepared::default();
        prepared.add(&key, "secret", None, (0o600, None)).unwrap();
        prepared.add(&file, "new", Some("old".into()), PLAIN).unwrap();
        fs::write(&file, "edited").unwrap();
        assert!(prepared.put_in_place().is_err());
        assert_eq!(names(folder.path()), ["robot.yaml"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "edited");
        let mut prepared = Prepared::default();
        prepared.add(&file, "new", None, PLAIN).unwrap();
        assert!(prepared.put_in_place().is_err(), "there is a file by now");
    }
}
