// SPDX-License-Identifier: Apache-2.0
//! The file of a node's own key.

use crate::accounts::{self, Owner};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use tautline_proto::crypto::keys::encode;
use tautline_proto::{PublicKey, SecretKey};

/// Maximum bytes of a key file, which has a comment and one line.
const MAX_FILE: u64 = 4096;
const LABEL: &str = "tautline-secret-key:";
/// Permission bits that would let users other than the owner read or change the file.
const NON_OWNER_BITS: u32 = 0o077;
/// User id of root.
const ROOT: u32 = 0;

crate::error::show_as_text!(KeyFileError);

/// The reason why a key file cannot be used.
#[derive(thiserror::Error)]
pub enum KeyFileError {
    /// The file does not exist.
    #[error("{}: the key does not exist; create it with: tautline keygen {}", .0.display(), .0.display())]
    Missing(PathBuf),
    /// The file exists already.
    #[error("{}: a key exists already; it is not replaced, because it identifies this node to its peers", .0.display())]
    Exists(PathBuf),
    /// The system returned an error.
    #[error("{}: {}", .0.display(), .1)]
    System(PathBuf, std::io::Error),
    /// Others could read the key and act as this node.
    #[error("{}: found permissions {mode:03o}, with which other users can read or change it; allowed: 600 (chmod 600 {}). Create a new key if another user may have read it", .path.display(), .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The permissions.
        mode: u32,
    },
    /// Another user could change the file, or give it away.
    #[error("{}: found the owner with user id {owner}; allowed: {}. If {owner} is the user of the daemon, run this program as that user (sudo -u '#{owner}'); otherwise: chown {} {}", .path.display(), allowed_owners(*.user), user_name(*.user), .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// The contents are not a key.
    #[error("{}: found {found}; allowed: one line with '{LABEL}' and the base64 of 32 bytes, and comments (#)", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The contents, in words.
        found: &'static str,
    },
}

fn user_name(id: u32) -> String {
    if id == ROOT { "root".into() } else { id.to_string() }
}

fn allowed_owners(user: u32) -> String {
    let or_root = if user == ROOT { "" } else { ", or root" };
    let is_own = user == rustix::process::geteuid().as_raw();
    let whose = if is_own { "this program" } else { "the systemd unit" };
    format!("{}, the user of {whose}{or_root}", user_name(user))
}

/// Reads a key that only its owner can read. The owner must be this process's user or root.
pub fn load(path: &Path) -> Result<SecretKey, KeyFileError> {
    load_for_user(path, rustix::process::geteuid().as_raw())
}

/// As [`load`], for commands that do not run the daemon: root may also read the key of the systemd
/// unit's user.
pub fn load_to_show(path: &Path) -> Result<SecretKey, KeyFileError> {
    let own = rustix::process::geteuid();
    let of_unit = accounts::unit_user().filter(|_| own.is_root()).map(|it| it.owner.0);
    load_for_user(path, of_unit.unwrap_or(own.as_raw()))
}

/// As [`load`], for the key of a daemon that runs as `user`.
pub fn load_for_user(path: &Path, user: u32) -> Result<SecretKey, KeyFileError> {
    let system = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => KeyFileError::Missing(path.into()),
        _ => KeyFileError::System(path.into(), error),
    };
    let file = File::open(path).map_err(system)?;
    let metadata = file.metadata().map_err(system)?;
    if metadata.is_dir() {
        return Err(KeyFileError::Malformed { path: path.into(), found: "a folder" });
    }
    let mode = metadata.mode() & 0o777;
    if mode & NON_OWNER_BITS != 0 {
        return Err(KeyFileError::Open { path: path.into(), mode });
    }
    check_owner(path, metadata.uid(), user)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(system)?;
    parse(&bytes).map_err(|found| KeyFileError::Malformed { path: path.into(), found })
}

/// Checks the owner of a file, who can let others read it at any time, and can replace the key.
fn check_owner(path: &Path, owner: u32, user: u32) -> Result<(), KeyFileError> {
    match owner == user || owner == ROOT {
        true => Ok(()),
        false => Err(KeyFileError::Owner { path: path.into(), owner, user }),
    }
}

/// Parses a key file. The error describes the contents without quoting them.
fn parse(bytes: &[u8]) -> Result<SecretKey, &'static str> {
    if bytes.len() as u64 > MAX_FILE {
        return Err("more than 4096 bytes");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "bytes that are not UTF-8")?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut lines = lines.filter(|line| !line.starts_with('#'));
    let line = lines.next().ok_or("no key")?;
    if lines.next().is_some() {
        return Err("more than one line");
    }
    let key = line.strip_prefix(LABEL).ok_or("a line that is no secret key (a public one?)")?;
    key.trim().parse().map_err(|_| "a key that is not the base64 of 32 bytes")
}

/// Makes a key and its file; never replaces an existing file. Returns the public key.
pub fn generate(path: &Path) -> Result<PublicKey, KeyFileError> {
    generate_for(path, None)
}

/// As [`generate`], for the daemon of another user: root gives the file to `owner`.
pub fn generate_for(path: &Path, owner: Option<Owner>) -> Result<PublicKey, KeyFileError> {
    let system = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => KeyFileError::Exists(path.into()),
        _ => KeyFileError::System(path.into(), error),
    };
    let key = random_key().map_err(system)?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(system)?;
    let text = key_file_text(&key);
    let mut complete = || {
        file.write_all(text.as_bytes())?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.sync_all()
    };
    complete().map_err(system)?;
    Ok(key.public())
}

/// Returns a new random key.
pub fn random_key() -> std::io::Result<SecretKey> {
    let mut bytes = [0; 32];
    fill(&mut bytes)?;
    Ok(SecretKey::new(bytes))
}

/// Returns the text of a key file.
pub fn key_file_text(key: &SecretKey) -> String {
    let (public, secret) = (key.public(), encode(key.bytes()));
    format!(
        "# Secret key of this node. Do not copy it.\n# Public key: {public}\n{LABEL} {secret}\n"
    )
}

/// Fills `bytes` from the system's random number generator.
fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| std::io::Error::other("the system has no randomness"))
}

/// Returns a random number from the system, for the protocol. Keys depend on it: without randomness
/// this process must not continue.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    if let Err(error) = fill(&mut bytes) {
        tracing::error!("{error}");
        std::process::abort();
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_generated_key_is_read_and_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("robot.key");
        let public = generate(&path).unwrap();
        assert_eq!(load(&path).unwrap().public(), public);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(matches!(generate(&path), Err(KeyFileError::Exists(_))));
        assert_eq!(load(&path).unwrap().public(), public);
    }

    #[test]
    fn a_key_of_another_user_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("robot.key");
        generate(&path).unwrap();
        // Only root can give a file away; any user can have a file that belongs to root.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(matches!(load(&path), Err(KeyFileError::Owner { owner: 65_534, .. })));
        }
    }

    #[test]
    fn errors_of_key_files_name_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("robot.key");
        assert!(load(&path).unwrap_err().to_string().contains("tautline keygen"));
        generate(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("640") && error.contains("chmod 600"), "{error}");
        let error = check_owner(&path, 1000, 999).unwrap_err().to_string();
        assert!(error.contains("If 1000 is the user of the daemon"), "{error}");
        assert!(error.contains("allowed: 999, the user of the systemd unit, or root."), "{error}");
        assert!(error.contains("otherwise: chown 999"), "{error}");
        let error = check_owner(&path, 1000, ROOT).unwrap_err().to_string();
        assert!(error.contains("allowed: root, the user of "), "{error}");
        assert!(error.contains("otherwise: chown root"), "{error}");
        assert!(check_owner(&path, 999, 999).is_ok() && check_owner(&path, 0, 999).is_ok());
        for bad in ["", "tautline-secret-key: AAAA", "hello", "a: b\nc: d"] {
            std::fs::write(&path, bad).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let error = load(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Malformed { .. }), "{bad}: {error}");
        }
    }
}
