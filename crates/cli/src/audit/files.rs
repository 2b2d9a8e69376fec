// SPDX-License-Identifier: Apache-2.0
//! A bounded file of lines. A full file is renamed to `NAME.1`, the earlier `NAME.1` to `NAME.2`,
//! and so on; the oldest file is removed.

use crate::descriptors::FileId;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mode of a new file: the owner may write, the group may read.
const MODE: u32 = 0o640;
/// Mode bits of a file that group or others may write to.
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
/// Mode bit of a folder: others may write.
const OTHERS_WRITE: u32 = 0o002;
/// Mode bit of a folder: users may remove only their own files.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// Lines in rotated files.
#[derive(Debug)]
pub(super) struct RotatingFiles {
    path: PathBuf,
    /// Maximum bytes of one file.
    size: u64,
    /// Maximum number of files, including the current one.
    count: u32,
    current: CurrentFile,
}

/// The file that is written.
#[derive(Debug)]
struct CurrentFile {
    file: File,
    bytes: u64,
    /// Whether the file ends within a line.
    torn: bool,
}

impl RotatingFiles {
    /// Opens the files and continues at the end of the current one.
    pub(super) fn open(path: &Path, size: u64, count: u32) -> io::Result<Self> {
        let current = CurrentFile::open(path)?;
        for older in (1..count).map(|number| numbered_path(path, number)) {
            if let Ok(found) = fs::symlink_metadata(&older) {
                check_file_access(&format!("{}: ", older.display()), &found)?;
            }
        }
        Ok(Self { path: path.into(), size, count, current })
    }

    /// Writes a line; `line` contains no line feed.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        if !self.is_still_at_path() {
            self.current = CurrentFile::open(&self.path)?;
        }
        let text = format!("{}{line}\n", if self.current.torn { "\n" } else { "" });
        if self.current.bytes > 0 && self.current.bytes + text.len() as u64 > self.size {
            self.rotate()?;
        }
        let current = &mut self.current;
        current.torn = true;
        current.file.write_all(text.as_bytes())?;
        current.torn = false;
        current.bytes += text.len() as u64;
        Ok(())
    }

    /// Whether the open file is still at its path, neither moved nor removed.
    fn is_still_at_path(&self) -> bool {
        let (Ok(ours), Ok(there)) =
            (self.current.file.metadata(), fs::symlink_metadata(&self.path))
        else {
            return false;
        };
        FileId::from_metadata(&ours) == FileId::from_metadata(&there)
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.count.saturating_sub(1)).rev() {
            rename(&numbered_path(&self.path, number), &numbered_path(&self.path, number + 1))?;
        }
        match self.count {
            0 | 1 => fs::remove_file(&self.path)?,
            _ => rename(&self.path, &numbered_path(&self.path, 1))?,
        }
        self.current = CurrentFile::open(&self.path)?;
        Ok(())
    }
}

/// Returns the path of the older file with this number; number 1 is the newest.
pub(super) fn numbered_path(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Refuses a file that another local user may have created or could write to. Otherwise that user
/// could read or forge the log, or a link could direct the log into another file. `place` is the
/// start of the error text.
fn check_file_access(place: &str, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let wrong = match metadata.nlink() {
        _ if kind.is_symlink() => Some("a symbolic link".to_owned()),
        _ if kind.is_dir() => Some("a folder".to_owned()),
        _ if !kind.is_file() => Some("a pipe, socket or device".to_owned()),
        0 | 1 => access_by_others(metadata),
        names => Some(format!("a file that has {names} names (hard links)")),
    };
    let allowed = "a regular file with one name that belongs to this user or root, without write \
                   permission for group and others";
    refuse(place, wrong, &format!("{allowed}; move it away"))
}

/// Refuses a folder in which every local user may replace files. A folder that a group may write to
/// is allowed, because /var/log often belongs to the group of syslog; each file is checked.
fn check_folder_access(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let place = format!("its folder {}: ", folder.display());
    let mode = fs::metadata(folder)?.mode();
    let wrong = (mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE).then(|| mode_text(mode));
    refuse(&place, wrong, "a folder without write permission for others, or with the sticky bit")
}

/// Describes the owner or mode that lets another local user write to a file; `None` if nothing does.
fn access_by_others(metadata: &Metadata) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != ROOT && owner != geteuid().as_raw() {
        return Some(format!("owner {owner}"));
    }
    (mode & GROUP_OR_OTHERS_WRITE != 0).then(|| mode_text(mode))
}

fn mode_text(mode: u32) -> String {
    format!("mode {:04o}", mode & 0o7777)
}

fn refuse(place: &str, wrong: Option<String>, allowed: &str) -> io::Result<()> {
    wrong.map_or(Ok(()), |wrong| {
        let text = format!("{place}found {wrong}; allowed: {allowed}");
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    })
}

impl CurrentFile {
    fn open(path: &Path) -> io::Result<Self> {
        check_folder_access(path)?;
        if let Ok(found) = fs::symlink_metadata(path) {
            // The opened file is checked again below. This check has the error text for a link.
            check_file_access("", &found)?;
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.append(true).read(true).create(true).mode(MODE).custom_flags(flags);
        let file = options.open(path)?;
        let found = file.metadata()?;
        check_file_access("", &found)?;
        let mut last = [b'\n'];
        if found.len() > 0 {
            file.read_exact_at(&mut last, found.len() - 1)?;
        }
        Ok(Self { file, bytes: found.len(), torn: last != [b'\n'] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.audit");
        (folder, path)
    }

    fn content(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_is_removed() {
        let (folder, path) = folder();
        let mut files = RotatingFiles::open(&path, 100, 3).unwrap();
        for line in 0..1000 {
            files.write(&format!("line {line:04}")).unwrap();
            let all: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap()).collect();
            assert!(all.len() <= 3 && all.iter().all(|it| it.metadata().unwrap().len() <= 100));
        }
        // Each file holds ten lines.
        assert_eq!(content(&path).lines().next_back(), Some("line 0999"));
        assert_eq!(content(&numbered_path(&path, 1)).lines().next(), Some("line 0980"));
        assert_eq!(content(&numbered_path(&path, 2)).lines().next(), Some("line 0970"));
    }

    #[test]
    fn a_single_file_starts_again() {
        let (folder, path) = folder();
        let mut files = RotatingFiles::open(&path, 30, 1).unwrap();
        (0..4).for_each(|line| files.write(&format!("line {line:04}")).unwrap());
        assert_eq!(content(&path), "line 0003\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_restart_continues_after_a_torn_line_and_within_the_bound() {
        let (_folder, path) = folder();
        fs::write(&path, "whole\ntor").unwrap();
        RotatingFiles::open(&path, 20, 2).unwrap().write("next").unwrap();
        assert_eq!(content(&path), "whole\ntor\nnext\n");
        RotatingFiles::open(&path, 20, 2).unwrap().write("more").unwrap();
        RotatingFiles::open(&path, 20, 2).unwrap().write("again").unwrap();
        assert_eq!(content(&numbered_path(&path, 1)), "whole\ntor\nnext\nmore\n");
        assert_eq!(content(&path), "again\n");
    }

    #[test]
    fn a_moved_file_is_created_again() {
        let (_folder, path) = folder();
        let mut files = RotatingFiles::open(&path, 1000, 4).unwrap();
        files.write("one").unwrap();
        fs::rename(&path, numbered_path(&path, 9)).unwrap();
        files.write("two").unwrap();
        fs::remove_file(&path).unwrap();
        files.write("three").unwrap();
        assert_eq!(content(&path), "three\n");
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn error(path: &Path) -> String {
        RotatingFiles::open(path, 1000, 4).unwrap_err().to_string()
    }

    #[test]
    fn files_of_or_writable_by_other_users_are_refused_with_a_reason() {
        let (folder, path) = folder();
        for name in [path.clone(), numbered_path(&path, 1), numbered_path(&path, 3)] {
            fs::write(&name, "before\n").unwrap();
            set_mode(&name, 0o640);
            RotatingFiles::open(&path, 1000, 4).unwrap();
            set_mode(&name, 0o660);
            let text = error(&path);
            assert!(text.contains("mode 0660") && text.contains("; allowed: "), "{text}");
            set_mode(&name, 0o640);
            fs::hard_link(&name, folder.path().join("other")).unwrap();
            assert!(error(&path).contains("2 names"), "{}", error(&path));
            fs::remove_file(folder.path().join("other")).unwrap();
            // Only root can change the owner of a file.
            if geteuid().is_root() {
                chown(&name, Some(65534), None).unwrap();
                assert!(error(&path).contains("owner 65534"), "{}", error(&path));
            }
            fs::remove_file(&name).unwrap();
        }
    }

    #[test]
    fn a_group_writable_folder_is_accepted_and_a_world_writable_one_refused() {
        let (folder, path) = folder();
        set_mode(folder.path(), 0o777);
        let text = error(&path);
        assert!(text.contains("its folder") && text.contains("mode 0777"), "{text}");
        assert!(!path.exists(), "nothing is made there");
        for mode in [0o775, 0o1777] {
            set_mode(folder.path(), mode);
            RotatingFiles::open(&path, 1000, 4).unwrap();
        }
    }

    #[test]
    fn a_new_file_is_only_for_its_owner() {
        let (_folder, path) = folder();
        RotatingFiles::open(&path, 1000, 4).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o137, 0);
    }

    #[test]
    fn links_pipes_and_folders_are_refused() {
        let (folder, path) = folder();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        assert!(error(&path).contains("a symbolic link"), "{}", error(&path));
        assert_eq!(content(&victim), "precious");
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(error(&path).contains("regular file"), "{}", error(&path));
        assert!(RotatingFiles::open(folder.path(), 1000, 4).is_err());
    }
}
