// SPDX-License-Identifier: Apache-2.0
//! A file of lines that is bounded: when it is full it becomes `NAME.1`, that one `NAME.2`, and
//! so on; the oldest is removed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of a new file: its owner writes, its group reads.
const MODE: u32 = 0o640;

/// Lines in files.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// Most bytes of one file.
    size: u64,
    /// Most files, the current one among them.
    count: u32,
    file: File,
    written: u64,
    /// The file ends within a line.
    torn: bool,
}

impl Files {
    /// Goes on where the file ends.
    pub(super) fn open(path: &Path, size: u64, count: u32) -> io::Result<Self> {
        let (file, written, torn) = open(path)?;
        Ok(Self { path: path.into(), size, count, file, written, torn })
    }

    /// Writes a line; `line` has no line feed.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        if !self.is_there() {
            (self.file, self.written, self.torn) = open(&self.path)?;
        }
        let text = format!("{}{line}\n", if self.torn { "\n" } else { "" });
        if self.written > 0 && self.written + text.len() as u64 > self.size {
            self.rotate()?;
        }
        self.torn = true;
        self.file.write_all(text.as_bytes())?;
        self.torn = false;
        self.written += text.len() as u64;
        Ok(())
    }

    /// Whether nobody has moved or removed the file.
    fn is_there(&self) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.count.saturating_sub(1)).rev() {
            rename(&numbered(&self.path, number), &numbered(&self.path, number + 1))?;
        }
        match self.count {
            0 | 1 => fs::remove_file(&self.path)?,
            _ => rename(&self.path, &numbered(&self.path, 1))?,
        }
        (self.file, self.written, self.torn) = open(&self.path)?;
        Ok(())
    }
}

/// The name of an older file; 1 is the newest of them.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
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

/// The file, its length, and whether its last line has no end. A link or a pipe in its place
/// is refused: the folder may be open to others.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.append(true).read(true).create(true).mode(MODE).custom_flags(flags);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut last = [b'\n'];
    if found.len() > 0 {
        file.read_exact_at(&mut last, found.len() - 1)?;
    }
    Ok((file, found.len(), last != [b'\n']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.audit");
        (folder, path)
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_is_removed() {
        let (folder, path) = folder();
        let mut files = Files::open(&path, 100, 3).unwrap();
        for line in 0..1000 {
            files.write(&format!("line {line:04}")).unwrap();
            let all: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap()).collect();
            assert!(all.len() <= 3 && all.iter().all(|it| it.metadata().unwrap().len() <= 100));
        }
        // Ten lines in each.
        assert_eq!(text(&path).lines().next_back(), Some("line 0999"));
        assert_eq!(text(&numbered(&path, 1)).lines().next(), Some("line 0980"));
        assert_eq!(text(&numbered(&path, 2)).lines().next(), Some("line 0970"));
    }

    #[test]
    fn one_file_alone_begins_anew() {
        let (folder, path) = folder();
        let mut files = Files::open(&path, 30, 1).unwrap();
        (0..4).for_each(|line| files.write(&format!("line {line:04}")).unwrap());
        assert_eq!(text(&path), "line 0003\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_restart_goes_on_after_a_torn_line_and_within_the_bound() {
        let (_folder, path) = folder();
        fs::write(&path, "whole\ntor").unwrap();
        Files::open(&path, 20, 2).unwrap().write("next").unwrap();
        assert_eq!(text(&path), "whole\ntor\nnext\n");
        Files::open(&path, 20, 2).unwrap().write("more").unwrap();
        Files::open(&path, 20, 2).unwrap().write("again").unwrap();
        assert_eq!(text(&numbered(&path, 1)), "whole\ntor\nnext\nmore\n");
        assert_eq!(text(&path), "again\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let (_folder, path) = folder();
        let mut files = Files::open(&path, 1000, 4).unwrap();
        files.write("one").unwrap();
        fs::rename(&path, numbered(&path, 9)).unwrap();
        files.write("two").unwrap();
        fs::remove_file(&path).unwrap();
        files.write("three").unwrap();
        assert_eq!(text(&path), "three\n");
    }

    #[test]
    fn links_pipes_and_folders_are_refused() {
        let (folder, path) = folder();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        assert!(Files::open(&path, 1000, 4).is_err());
        assert_eq!(text(&victim), "precious");
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = Files::open(&path, 1000, 4).unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
        assert!(Files::open(folder.path(), 1000, 4).is_err());
    }
}
