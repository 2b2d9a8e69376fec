// SPDX-License-Identifier: Apache-2.0
//! Selection of the daemon: its control socket.

use super::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tautline::config::{Config, Surroundings};
use tautline::status::Status;
use tautline_cli::control::Client;
use tautline_cli::unit;

/// Which daemon to ask.
#[derive(Debug, Clone, clap::Args)]
pub struct Daemon {
    /// Control socket of the daemon ('control:' in its file)
    #[arg(long, value_name = "PATH", conflicts_with = "node")]
    control: Option<PathBuf>,
    /// Name of the daemon's node, if several daemons run on this machine
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

impl Daemon {
    /// Connects to the selected daemon; the error lists the running daemons.
    pub fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.socket()?).map_err(Failure::new)
    }

    /// Returns the status of the selected daemon; without a selection, that of the daemon with the file
    /// `configured`; without a file, that of the only daemon. The error explains a missing status.
    pub fn status_of(&self, configured: Option<&Config>) -> Result<Status, String> {
        let is_selected = self.control.is_some() || self.node.is_some();
        let client = match configured.filter(|_| !is_selected) {
            Some(config) => Client::connect(&socket_of(config)).map_err(|it| it.to_string()),
            None => self.connect().map_err(|failure| failure.text),
        };
        client?.status().map_err(|error| error.to_string())
    }

    fn socket(&self) -> Result<PathBuf, Failure> {
        match &self.control {
            Some(path) => Ok(path.clone()),
            None => {
                let own = Surroundings::current(Path::new("")).control_folders();
                let node = self.node.as_deref();
                // Sessions are searched last, so that no user can hide a service from root with a socket in
                // a session's folder.
                let found = select_socket(&own, node)
                    .or_else(|_| select_socket(&with_session_folders(own), node));
                found.map_err(Failure::new)
            }
        }
    }
}

/// Returns the socket of the daemon with this file. A service manager may have started the daemon in
/// another environment, in which `control` defaults to another folder.
fn socket_of(config: &Config) -> PathBuf {
    let others = with_session_folders(Surroundings::current(Path::new("")).control_folders());
    let others = others.iter().map(|folder| folder.join(format!("{}.sock", config.name)));
    let mut all = std::iter::once(config.control.clone()).chain(others);
    all.find(|it| it.exists()).unwrap_or_else(|| config.control.clone())
}

/// For root, adds the folders in which user sessions have their control sockets.
fn with_session_folders(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    match rustix::process::geteuid().is_root() {
        true => with_sessions_in(folders, Path::new("/run/user")),
        false => folders,
    }
}

fn with_sessions_in(mut folders: Vec<PathBuf>, sessions: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(sessions).into_iter().flatten().flatten();
    let others = entries.map(|it| it.path().join("tautline"));
    let others = others.filter(|it| it.is_dir() && !folders.contains(it));
    let mut others: Vec<PathBuf> = others.collect();
    others.sort();
    folders.append(&mut others);
    folders
}

/// Returns the only socket in `folders`, or the socket of `node`.
fn select_socket(folders: &[PathBuf], node: Option<&str>) -> Result<PathBuf, String> {
    let all: Vec<PathBuf> = folders.iter().flat_map(|folder| list_sockets(folder)).collect();
    let meant: Vec<&PathBuf> = all
        .iter()
        .filter(|path| node.is_none_or(|node| path.file_stem() == Some(node.as_ref())))
        .collect();
    let searched =
        folders.iter().map(|folder| describe_folder(folder)).collect::<Vec<_>>().join(" and ");
    match (&meant[..], node) {
        ([one], _) => Ok((*one).clone()),
        ([first, ..], Some(_)) => Ok((*first).clone()),
        ([], Some(node)) if !all.is_empty() => Err(format!(
            "no daemon of node '{node}' in {searched}; running daemons:\n{}",
            list_of_sockets(&all)
        )),
        ([], _) => Err(format!(
            "no daemon is running (no socket in {searched})\n\
             {}\n\
             if its file has 'control: PATH', use: --control PATH\n\
             if another user runs it, run this command as that user",
            unit::how_to_start()
        )),
        _ => Err(format!(
            "several daemons run here; choose one with --node NAME or --control PATH:\n{}",
            list_of_sockets(&all)
        )),
    }
}

/// Returns a folder's name, and the reason if this user cannot see its sockets.
fn describe_folder(folder: &Path) -> String {
    let shown = folder.display();
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("{shown}, which this user may not read,")
        }
        _ => shown.to_string(),
    }
}

fn list_of_sockets(sockets: &[PathBuf]) -> String {
    let line = |path: &PathBuf| {
        let node = path.file_stem().unwrap_or_default().to_string_lossy();
        format!("  --node {node}  ({})", path.display())
    };
    sockets.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn list_sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some("sock".as_ref()))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        folder
    }

    #[test]
    fn one_daemon_is_found_without_a_flag() {
        let (empty, one) = (folder_with(&[]), folder_with(&["robot1.sock", "other.txt"]));
        let folders = [empty.path().into(), one.path().into(), "/nonexistent".into()];
        assert_eq!(select_socket(&folders, None), Ok(one.path().join("robot1.sock")));
    }

    #[test]
    fn several_daemons_are_listed_by_name() {
        let folder = folder_with(&["robot1.sock", "base.sock"]);
        let folders = [folder.path().into()];
        let error = select_socket(&folders, None).unwrap_err();
        assert!(error.contains("--node base") && error.contains("--node robot1"), "{error}");
        assert_eq!(select_socket(&folders, Some("base")), Ok(folder.path().join("base.sock")));
        let error = select_socket(&folders, Some("robot9")).unwrap_err();
        assert!(error.contains("'robot9'") && error.contains("--node base"), "{error}");
    }

    #[test]
    fn root_finds_the_daemon_of_a_users_session() {
        let sessions = tempfile::tempdir().unwrap();
        let folder = sessions.path().join("1000/tautline");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir(sessions.path().join("1001")).unwrap();
        std::fs::write(folder.join("robot1.sock"), "").unwrap();
        let folders = with_sessions_in(vec!["/nonexistent".into()], sessions.path());
        assert_eq!(select_socket(&folders, None), Ok(folder.join("robot1.sock")));
        // Root's own session is searched only once.
        let own = vec![folder.clone()];
        assert_eq!(with_sessions_in(own.clone(), sessions.path()), own);
    }

    #[test]
    fn without_a_daemon_the_start_command_is_shown() {
        let error = select_socket(&["/nonexistent".into()], None).unwrap_err();
        assert!(error.contains(unit::how_to_start()) && error.contains("/nonexistent"), "{error}");
    }
}
