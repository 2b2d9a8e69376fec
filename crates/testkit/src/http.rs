// SPDX-License-Identifier: Apache-2.0
//! XML-RPC over HTTP, as a ROS master and a node exchange it, without a client library.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;

/// Reads a request with a `Content-Length`; returns its body, or `None` if the connection has
/// ended.
pub fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_lowercase();
        let value = lower.strip_prefix("content-length:").map(str::trim);
        length = value.map_or(length, |digits| digits.parse().expect("a length"));
        line.clear();
    }
    if length == 0 {
        return Ok(None);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Writes a successful response.
pub fn respond(mut writer: impl Write, xml: &str) -> io::Result<()> {
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{xml}", xml.len())
}

/// Sends a call to a server on this machine; returns the body of the response.
pub fn call(port: u16, xml: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let length = xml.len();
    write!(
        stream,
        "POST / HTTP/1.0\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(xml)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    assert!(head.contains("200 OK"), "{answer}");
    Ok(body.to_owned())
}
