// SPDX-License-Identifier: Apache-2.0
//! Connections of local subscribers and service clients: their headers, and why we refuse them.

use super::admission::{Admission, Admitted, SlotKind};
use super::connection::Identity;
use super::header::{Header, TAUTLINE_FIELD};
use super::note::Note;
use super::shown::for_logs;
use super::xmlrpc::tune;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Time limit of a subscriber or client to send its header, or to read ours.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts connections of subscribers and service clients forever, and reads their headers.
pub(super) async fn accept(
    listener: TcpListener,
    notes: mpsc::Sender<Note>,
    admission: Arc<Admission>,
) {
    loop {
        let Admitted { stream, peer, slot } =
            admission.accept(&listener, SlotKind::Handshake).await;
        let (notes, admission) = (notes.clone(), admission.clone());
        tokio::spawn(async move {
            let note = slot.while_held(peer, read_header(stream, peer, &admission)).await;
            if let Some(note) = note.flatten() {
                let _ = notes.send(note).await;
            }
        });
    }
}

/// Reads the header of a connection; returns a note with the connection and the header.
async fn read_header(
    mut stream: TcpStream,
    peer: SocketAddr,
    admission: &Admission,
) -> Option<Note> {
    let tuned = tune(&stream);
    match timeout(HANDSHAKE_TIMEOUT, Header::read(&mut stream)).await {
        Ok(Ok(header)) if tuned.is_ok() => {
            let slot = admission.admit(SlotKind::Connection, peer)?;
            return Some(Note::Connected(Admitted { stream, peer, slot }, header));
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "neither a subscriber nor a client"),
        _ => tracing::debug!(%peer, "no connection header in time"),
    }
    None
}

/// Sends a subscriber or client the reason of its refusal, and closes.
pub(super) async fn refuse(connection: Admitted, reason: String, identity: Identity) {
    let Admitted { mut stream, peer, slot } = connection;
    slot.pin();
    let header = identity.header().with("error", &reason).encode();
    let sent = timeout(HANDSHAKE_TIMEOUT, stream.write_all(&header)).await;
    tracing::debug!(%peer, reason, sent = sent.is_ok(), "subscriber refused");
    drop(slot);
}

/// What a local node wants to do.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Subscribe,
    Call,
}

/// Why a node that sent `header` must not use `offered` of ours, a topic or service.
pub(super) fn refusal(
    header: &Header,
    offered: &str,
    wanted: Use,
    matches: impl Fn(&str) -> bool,
) -> Option<String> {
    let (verb, forbidden) = match wanted {
        Use::Subscribe => ("wants", "read what Tautline publishes"),
        Use::Call => ("calls", "call what Tautline serves"),
    };
    if let Some(name) = header.get(TAUTLINE_FIELD) {
        return Some(format!("Tautline node '{}' must not {forbidden}", for_logs(name)));
    }
    let Some(md5) = header.get("md5sum") else {
        return Some("the connection header lacks 'md5sum'".into());
    };
    if matches(md5) {
        return None;
    }
    let caller = for_logs(header.get("callerid").unwrap_or("an unnamed node"));
    let type_name = for_logs(header.get("type").unwrap_or("an unnamed type"));
    Some(format!("{caller} {verb} {offered} as {type_name} (md5 {})", for_logs(md5)))
}
