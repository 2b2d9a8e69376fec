// SPDX-License-Identifier: Apache-2.0
//! The interactive restaurant: people order, watch and drive on a web page in their own browser.

use super::stage::{Plan, Stage};
use anyhow::{Context, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;
use tautline_lab::rig::enclosure::Inner;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::progress::Progress;

/// Environment variable with the file descriptor of the page's listening socket. The socket is opened
/// outside the enclosure, where the browser runs: the enclosure has a loopback interface of its own. The
/// page's server inherits the socket.
const LISTENER: &str = "TAUTLINE_LAB_LISTENER";
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// Opens the page's socket on this machine's loopback, and runs this program inside the enclosure.
pub fn start_inside(port: u16) -> Result<ExitCode> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
        format!("the page's port, 127.0.0.1:{port}, is not free; choose another with --port")
    })?;
    fcntl_setfd(&listener, FdFlags::empty())?;
    let inner = Inner::start(&[(LISTENER, &listener.as_raw_fd().to_string())])?;
    println!("A shell inside: nsenter --target {} --all", inner.id());
    inner.end()
}

/// Serves the page until somebody presses Ctrl+C.
pub fn run(plan: &Plan<'_>, port: u16, progress: &Progress) -> Result<()> {
    let listener = std::env::var(LISTENER).context("no socket for the page")?;
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    // The viewer makes topics cross the radio. It does not record: Ctrl+C would leave a recording
    // without its index.
    let mut viewer = stage.viewer(false)?;
    let mut waiter = stage.waiter()?;
    let mut server = stage.page(&format!("fd:{listener}"))?;
    progress.finish();
    println!("The restaurant is open: http://127.0.0.1:{port}/ (Ctrl+C closes it)");
    println!("Its logs and the files of its daemons are in {}", plan.folder.display());
    loop {
        stage.check()?;
        [&mut viewer, &mut server].into_iter().try_for_each(Process::check_running)?;
        if let Some(event) = next_message(&mut waiter)? {
            println!("{event}");
        }
    }
}

/// Returns the waiter's next message, if one arrives soon.
fn next_message(waiter: &mut Process) -> Result<Option<String>> {
    waiter.check_running()?;
    Ok(waiter.await_line("", LOOK_PERIOD).ok())
}
