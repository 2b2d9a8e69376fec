// SPDX-License-Identifier: Apache-2.0
//! Users of this machine, as listed in /etc/passwd.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// The user of the systemd units.
const UNIT_USER: &str = "tautline";
/// Maximum bytes of /etc/passwd that are searched.
const MAX_PASSWD_BYTES: u64 = 1 << 20;

/// User and group.
pub type Owner = (u32, u32);

/// A user of this machine.
#[derive(Debug)]
pub struct User {
    /// Name in /etc/passwd.
    pub name: String,
    /// User ID and group ID.
    pub owner: Owner,
    /// Home folder.
    pub home: PathBuf,
}

/// Returns the first user in /etc/passwd whose name and number satisfy `fits`.
pub fn find_user(fits: impl Fn(&str, u32) -> bool) -> Option<User> {
    let mut text = String::new();
    File::open("/etc/passwd").ok()?.take(MAX_PASSWD_BYTES).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        let user = User { name: name.into(), owner: (uid, gid), home: home.into() };
        fits(name, uid).then_some(user)
    })
}

/// Returns the user of the systemd units; `None` if the package is not installed.
pub fn unit_user() -> Option<User> {
    find_user(|name, _| name == UNIT_USER)
}
