// SPDX-License-Identifier: Apache-2.0
//! The control socket, over a real one.

use crate::fake;
use crate::fake::FakeNode;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tautline::audit::Actor;
use tautline::status::TopicChange;
use tautline_cli::control::{
    Client, ControlError, ControlServer, MAX_CLIENTS_PER_USER, MAX_REQUEST_BYTES, SOCKET_MODE,
};

fn socket() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tautline/robot1.sock");
    (folder, path)
}

fn ask(stream: &UnixStream, request: &[u8]) -> String {
    let mut writer = stream;
    writer.write_all(request).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn one_connection_serves_many_requests() {
    let (_folder, path) = socket();
    let node = FakeNode::new();
    let _server = ControlServer::start(&path, node.clone()).unwrap();
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.status().unwrap(), fake::status());
    let change = TopicChange { topic: "/scan".into(), priority: Some(9), rate_hz: None };
    assert_eq!(client.change_topic(change.clone()).unwrap(), ["/scan"]);
    let changes = node.changes.lock().unwrap().clone();
    let [(changed, Actor::User { uid, gid, pid, user })] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!((changed, *pid), (&change, std::process::id()));
    assert_eq!((&*uid.to_string(), &*gid.to_string()), (&*id("-u"), &*id("-g")));
    assert_eq!(user.as_ref().map(|user| user.as_str().to_owned()), Some(id("-un")));
    let refused =
        client.change_topic(TopicChange { topic: "/scam".into(), ..TopicChange::default() });
    assert!(
        matches!(refused, Err(ControlError::Refused(reason)) if reason.contains("/diagnostics"))
    );
    assert_eq!(client.status().unwrap().node, "robot1");
}

/// Returns the output of `id` for this process.
fn id(option: &str) -> String {
    let output = Command::new("id").arg(option).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns a Python program that runs as an unnamed user with the socket's group.
fn python_as_other_user(script: &str) -> Command {
    let mut program = Command::new("setpriv");
    program.args(["--reuid", "54321", "--regid", "0", "--clear-groups"]);
    program.args(["/usr/bin/python3", "-c", script]);
    program
}

/// Needs root to switch to another user.
#[test]
fn idle_clients_of_one_user_do_not_exclude_root() {
    assert_eq!(id("-u"), "0", "this test needs root");
    let (folder, path) = socket();
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    let _server = ControlServer::start(&path, FakeNode::new()).unwrap();
    let script = "import socket, sys\nall = [socket.socket(socket.AF_UNIX) for _ in range(40)]\n\
                  for s in all: s.connect(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()";
    let mut other = python_as_other_user(script);
    let mut other = other.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "open\n");
    let answered = Client::connect(&path).unwrap().status();
    drop(other.stdin.take());
    other.wait().unwrap();
    assert_eq!(answered.unwrap().node, "robot1");
}

/// Needs root to switch to another user.
#[test]
fn the_kernel_identifies_the_user_of_a_client() {
    assert_eq!(id("-u"), "0", "this test needs root");
    let (folder, path) = socket();
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    let node = FakeNode::new();
    let _server = ControlServer::start(&path, node.clone()).unwrap();
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(b'{\"set\": {\"topic\": \"/scan\", \"priority\": 9, \"uid\": 0}}\\n')\n\
                  print(s.recv(1000).decode())";
    let output = python_as_other_user(script).arg(&path).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("/scan"), "{output:?}");
    let changes = node.changes.lock().unwrap().clone();
    let [(_, Actor::User { uid: 54321, gid: 0, pid, user: None })] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_ne!(*pid, std::process::id());
}

#[test]
fn the_socket_is_for_owner_and_group_and_ends_with_the_daemon() {
    let (_folder, path) = socket();
    let server = ControlServer::start(&path, FakeNode::new()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, SOCKET_MODE);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_continues() {
    let (_folder, path) = socket();
    let _first = ControlServer::start(&path, FakeNode::new()).unwrap();
    let second = ControlServer::start(&path, FakeNode::new());
    assert!(matches!(second, Err(ControlError::AnotherDaemon(at)) if at == path));
    assert!(Client::connect(&path).unwrap().status().is_ok());
}

#[test]
fn a_socket_left_by_a_dead_daemon_is_replaced() {
    let (folder, path) = socket();
    std::fs::create_dir(folder.path().join("tautline")).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(Client::connect(&path), Err(ControlError::NoDaemon(_))));
    let _server = ControlServer::start(&path, FakeNode::new()).unwrap();
    assert!(Client::connect(&path).unwrap().status().is_ok());
}

#[test]
fn an_error_of_the_system_names_a_remedy() {
    let (folder, _) = socket();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = |path: &Path| ControlServer::start(path, FakeNode::new()).unwrap_err().to_string();
    let below_file = error(&file.join("robot.sock"));
    assert!(
        below_file.contains("set 'control:' in the file to a path where this user may write"),
        "{below_file}"
    );
    let long = error(&folder.path().join("x".repeat(200)));
    assert!(long.contains("set 'control:' in the file to a shorter path"), "{long}");
    let operation = "connecting";
    let source = std::io::ErrorKind::PermissionDenied.into();
    let refused = ControlError::System { path: "/run/tautline/a.sock".into(), operation, source };
    let refused = refused.to_string();
    assert!(
        refused.contains("/run/tautline/a.sock") && refused.contains("as the user of the daemon"),
        "{refused}"
    );
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(
        ControlServer::start(&path, FakeNode::new()),
        Err(ControlError::NotASocket(_))
    ));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn an_invalid_request_is_answered_with_the_allowed_ones() {
    let (_folder, path) = socket();
    let _server = ControlServer::start(&path, FakeNode::new()).unwrap();
    let stream = UnixStream::connect(&path).unwrap();
    for nonsense in [
        "\n",
        "{}\n",
        "{\"get\": \"keys\"}\n",
        "\u{0}\u{1}\n",
        "[[[[\n",
        "{\"set\": {\"priority\": 300}}\n",
    ] {
        let answer = ask(&stream, nonsense.as_bytes());
        assert!(
            answer.starts_with("{\"error\":") && answer.contains("allowed"),
            "{nonsense}: {answer}"
        );
    }
    assert!(ask(&stream, b"{\"get\": \"status\"}\n").starts_with("{\"ok\":"));
}

#[test]
fn an_endless_request_is_cut_off() {
    let (_folder, path) = socket();
    let _server = ControlServer::start(&path, FakeNode::new()).unwrap();
    let stream = UnixStream::connect(&path).unwrap();
    let answer = ask(&stream, &vec![b' '; MAX_REQUEST_BYTES as usize + 1]);
    assert!(answer.contains(&MAX_REQUEST_BYTES.to_string()), "{answer}");
}

#[test]
fn too_many_clients_get_an_error() {
    let (_folder, path) = socket();
    let _server = ControlServer::start(&path, FakeNode::new()).unwrap();
    let mut clients: Vec<Client> =
        (0..MAX_CLIENTS_PER_USER).map(|_| Client::connect(&path).unwrap()).collect();
    // Each client has received a response, so each is connected.
    clients.iter_mut().for_each(|client| assert!(client.status().is_ok()));
    let error = Client::connect(&path).unwrap().status().unwrap_err().to_string();
    assert!(error.contains("of this user are connected already"), "{error}");
}

#[test]
fn the_command_waits_for_a_long_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (waited, has_waited) = std::sync::mpsc::channel();
    let daemon = std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        has_waited.recv().unwrap();
        client.write_all(b"{\"error\":\"no such peer\"}\n").unwrap();
    });
    let answer = Client::connect(&path).unwrap().reload(false, || waited.send(()).unwrap());
    assert!(answer.unwrap_err().to_string().contains("no such peer"));
    daemon.join().unwrap();
}
