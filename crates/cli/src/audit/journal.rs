// SPDX-License-Identifier: Apache-2.0
//! Records to journald in its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram of
//! `FIELD=value` lines for each record.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
/// Timeout for sending one record. A record that is not sent by then is lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
const PRIORITY: u8 = 5;

#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Fails if nobody listens at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        UnixDatagram::unbound()?.connect(path)?;
        Ok(Self { socket, path: path.into() })
    }

    /// Writes a record. No value contains a line feed: texts are plain, and JSON escapes line
    /// feeds.
    pub(super) fn write(&self, line: &str, event: &str, peer: Option<&str>) -> io::Result<()> {
        let peer = peer.map_or(String::new(), |peer| format!("TAUTLINE_PEER={peer}\n"));
        let datagram = format!(
            "MESSAGE={line}\nPRIORITY={PRIORITY}\nSYSLOG_IDENTIFIER=tautline-audit\n\
             TAUTLINE_EVENT={event}\n{peer}"
        );
        // The datagram is sent by path each time, because journald may have restarted.
        self.socket.send_to(datagram.as_bytes(), &self.path).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_datagram_of_fields_also_after_a_restart_of_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(Journal::open(&path).is_err(), "nobody listens");
        let mut journald = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::open(&path).unwrap();
        for _ in 0..2 {
            journal.write("{\"event\":\"went\"}", "went", Some("base")).unwrap();
            let mut buffer = [0; 1000];
            let length = journald.recv(&mut buffer).unwrap();
            let expected = "MESSAGE={\"event\":\"went\"}\nPRIORITY=5\n\
                            SYSLOG_IDENTIFIER=tautline-audit\nTAUTLINE_EVENT=went\n\
                            TAUTLINE_PEER=base\n";
            assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), expected);
            drop(journald);
            assert!(journal.write("{}", "went", None).is_err());
            std::fs::remove_file(&path).unwrap();
            journald = UnixDatagram::bind(&path).unwrap();
        }
    }
}
