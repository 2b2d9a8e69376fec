// SPDX-License-Identifier: Apache-2.0
//! Frames over a TCP connection, each with a deadline and a limit.

use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tautline_cli::pairing::exchange::Keys;
use tautline_cli::pairing::facts::Message;
use tautline_cli::pairing::wire::{LENGTH_BYTES, frame_length};
use tautline_cli::pairing::{MAX_OPEN, MAX_SEALED};
use tautline_gateway::plain::plain;

/// Time limit for an answer that needs no person.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a vanished machine is detected.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum characters of a text from the other end.
pub const MAX_TEXT: usize = 400;
/// Maximum bytes of the error text about an invalid message.
const MAX_PROBLEM: usize = 200;

/// Why a channel has ended.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The connection failed, or nothing came in time.
    #[error("{0}")]
    System(io::Error),
    /// The other end closed the connection.
    #[error("the other machine closed the connection")]
    Closed,
    /// The other end refuses to continue.
    #[error("the other machine says: {0}")]
    Refused(String),
    /// The other end sent something that the protocol does not allow.
    #[error("the other machine sent {0}")]
    Wrong(String),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A reset: the other end closed the connection with bytes unread.
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ => Self::System(error),
        }
    }
}

/// Sets the TCP options of a pairing connection.
pub fn configure_stream(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))?;
    let each = Duration::from_secs(5);
    let keepalive = TcpKeepalive::new().with_time(each).with_interval(each).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}

/// Reads a frame and returns it without its length prefix. Memory grows only with received bytes.
pub fn read_frame(
    stream: &TcpStream,
    limit: usize,
    deadline: Instant,
) -> Result<Vec<u8>, ChannelError> {
    let mut length = Vec::new();
    read(stream, LENGTH_BYTES, deadline, &mut length)?;
    let length =
        length.try_into().map_err(|_| ErrorKind::UnexpectedEof).map_err(io::Error::from)?;
    let length = frame_length(length, limit).map_err(|it| ChannelError::Wrong(it.to_string()))?;
    let mut frame = Vec::new();
    read(stream, length, deadline, &mut frame)?;
    Ok(frame)
}

fn read(
    mut stream: &TcpStream,
    count: usize,
    deadline: Instant,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while out.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let part = buffer.len().min(count - out.len());
        match stream.read(&mut buffer[..part]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => out.extend_from_slice(&buffer[..read]),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a frame; fails if the receiver does not read in time.
pub fn write_frame(mut stream: &TcpStream, frame: &[u8]) -> io::Result<()> {
    stream.set_write_timeout(Some(TCP_USER_TIMEOUT))?;
    stream.write_all(frame)
}

/// Reads a frame of the key agreement.
pub fn read_exchange_frame(stream: &TcpStream, deadline: Instant) -> Result<Vec<u8>, ChannelError> {
    read_frame(stream, MAX_OPEN, deadline)
}

/// A connection after both ends have proved the code.
pub struct Channel {
    stream: TcpStream,
    keys: Keys,
    /// A message that arrived while a person was asked.
    early: Option<Message>,
}

impl Channel {
    pub fn new(stream: TcpStream, keys: Keys) -> Self {
        Self { stream, keys, early: None }
    }

    pub fn send(&mut self, message: &Message) -> Result<(), ChannelError> {
        let text = serde_json::to_vec(message).map_err(io::Error::from)?;
        Ok(write_frame(&self.stream, &self.keys.sealer.seal(&text))?)
    }

    /// Fails if the other end has ended the pairing. Reads a message that has arrived, and keeps
    /// [`Message::Ready`] for `receive`. Waits only for the rest of an incomplete frame, for up to
    /// [`REPLY_TIMEOUT`].
    pub fn watch(&mut self) -> Result<(), ChannelError> {
        if !self.has_bytes()? {
            return Ok(());
        }
        match self.receive_next(REPLY_TIMEOUT)? {
            Message::Ready if self.early.is_none() => {
                self.early = Some(Message::Ready);
                Ok(())
            }
            _ => Err(ChannelError::Wrong("a message that does not fit".into())),
        }
    }

    /// Whether a read would not wait: bytes have arrived, or the connection has ended.
    fn has_bytes(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match peeked {
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) =>
            {
                Ok(false)
            }
            peeked => peeked.map(|_| true),
        }
    }

    pub fn receive(&mut self, timeout: Duration) -> Result<Message, ChannelError> {
        match self.early.take() {
            Some(message) => Ok(message),
            None => self.receive_next(timeout),
        }
    }

    /// Receives the next message. [`Message::Cancel`] is an error.
    fn receive_next(&mut self, timeout: Duration) -> Result<Message, ChannelError> {
        let frame = read_frame(&self.stream, MAX_SEALED, Instant::now() + timeout)?;
        // serde's errors quote the message, so they are shortened and made plain.
        let wrong =
            |error: &dyn ToString| ChannelError::Wrong(plain(&error.to_string(), MAX_PROBLEM));
        let text = self.keys.opener.open(&frame).map_err(|error| wrong(&error))?;
        match serde_json::from_slice(&text) {
            Ok(Message::Cancel { reason }) => Err(ChannelError::Refused(plain(&reason, MAX_TEXT))),
            Ok(message) => Ok(message),
            Err(error) => Err(wrong(&format!("no message ({error})"))),
        }
    }
}
