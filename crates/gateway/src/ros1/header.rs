// SPDX-License-Identifier: Apache-2.0
//! The connection header that opens every TCPROS connection: `key=value` fields, each preceded by
//! its length, after the total length (<https://wiki.ros.org/ROS/Connection%20Header>).

use crate::plain::plain;
use std::collections::BTreeMap;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest header accepted; the definitions of the largest common types have about 64 KiB.
pub const MAX_HEADER_BYTES: usize = 512 * 1024;
/// Maximum bytes of a field that an error quotes.
const MAX_QUOTED: usize = 40;
/// Largest number of fields accepted; ROS itself uses about ten.
pub const MAX_FIELDS: usize = 64;

/// The field that identifies Tautline nodes, so that none reads what another publishes.
pub const TAUTLINE_FIELD: &str = "tautline";

/// The fields of one header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    fields: BTreeMap<String, String>,
}

/// Why bytes are no connection header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The connection failed.
    #[error("reading the connection header: {0}")]
    Io(#[from] io::Error),
    /// The total length exceeds the limit.
    #[error("a connection header of {found} bytes; at most {MAX_HEADER_BYTES} are accepted")]
    TooLong {
        /// The announced length.
        found: usize,
    },
    /// The connection or a field ends early.
    #[error("a connection header that ends {missing} bytes early")]
    Truncated {
        /// Missing bytes.
        missing: usize,
    },
    /// A field without a name.
    #[error("a connection header with a field that is not KEY=VALUE: '{0}'")]
    NoKey(String),
    /// Too many fields.
    #[error("a connection header of more than {MAX_FIELDS} fields")]
    TooManyFields,
}

impl Header {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.fields.insert(key.into(), value.into());
        self
    }

    /// Whether `key` is "1".
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.trim() == "1")
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }

    /// The bytes on the wire, with the total length first.
    pub fn encode(&self) -> Vec<u8> {
        let field = |(key, value): (&String, &String)| 4 + key.len() + 1 + value.len();
        let length: usize = self.fields.iter().map(field).sum();
        let mut bytes = Vec::with_capacity(4 + length);
        put_length(&mut bytes, length);
        for (key, value) in &self.fields {
            put_length(&mut bytes, key.len() + 1 + value.len());
            bytes.extend_from_slice(key.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes
    }

    /// Parses the bytes after the total length. Values that are not UTF-8 (comments in old message
    /// definitions) keep their readable part.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut fields = BTreeMap::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes
                .split_first_chunk::<4>()
                .ok_or_else(|| HeaderError::Truncated { missing: 4 - bytes.len() })?;
            let length = u32::from_le_bytes(*length) as usize;
            let (field, rest) = rest
                .split_at_checked(length)
                .ok_or_else(|| HeaderError::Truncated { missing: length - rest.len() })?;
            let (key, value) = split_field(field)?;
            fields.insert(key, value);
            if fields.len() > MAX_FIELDS {
                return Err(HeaderError::TooManyFields);
            }
            bytes = rest;
        }
        Ok(Self { fields })
    }

    /// Reads one header; buffers only received bytes, whatever the announced length.
    pub async fn read<R: AsyncRead + Unpin>(reader: &mut R) -> Result<Self, HeaderError> {
        let length = reader.read_u32_le().await? as usize;
        if length > MAX_HEADER_BYTES {
            return Err(HeaderError::TooLong { found: length });
        }
        let mut bytes = Vec::new();
        reader.take(length as u64).read_to_end(&mut bytes).await?;
        if bytes.len() < length {
            return Err(HeaderError::Truncated { missing: length - bytes.len() });
        }
        Self::parse(&bytes)
    }
}

fn split_field(field: &[u8]) -> Result<(String, String), HeaderError> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    match field.iter().position(|&byte| byte == b'=') {
        Some(at) if at > 0 => Ok((text(&field[..at]), text(&field[at + 1..]))),
        _ => Err(HeaderError::NoKey(plain(&text(field), MAX_QUOTED))),
    }
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_laid_out_as_ros_documents_it() {
        let header = Header::default().with("callerid", "/a").with("md5sum", "*");
        let mut expected = vec![27, 0, 0, 0, 11, 0, 0, 0];
        expected.extend_from_slice(b"callerid=/a");
        expected.extend_from_slice(&[8, 0, 0, 0]);
        expected.extend_from_slice(b"md5sum=*");
        assert_eq!(header.encode(), expected);
    }

    #[test]
    fn values_may_hold_equal_signs_and_odd_bytes() {
        let mut bytes = vec![12, 0, 0, 0];
        bytes.extend_from_slice(b"d=int A=1 \xb5\n");
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.get("d"), Some("int A=1 \u{fffd}\n"));
    }

    #[test]
    fn errors_name_the_problem() {
        let truncated = Header::parse(&[9, 0, 0, 0, b'a', b'=']).unwrap_err().to_string();
        assert!(truncated.contains("7 bytes early"), "{truncated}");
        let no_key = Header::parse(&[2, 0, 0, 0, b'h', b'i']).unwrap_err().to_string();
        assert!(no_key.contains("'hi'"), "{no_key}");
        let many: Vec<u8> = (0..=MAX_FIELDS as u8)
            .flat_map(|i| [3, 0, 0, 0, b'a' + i % 26, b'a' + i / 26, b'='])
            .collect();
        assert!(matches!(Header::parse(&many), Err(HeaderError::TooManyFields)));
    }

    fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = bytes;
        runtime.block_on(Header::read(&mut bytes))
    }

    #[test]
    fn a_false_length_allocates_no_memory() {
        assert!(matches!(read(&[0xff; 8]), Err(HeaderError::TooLong { .. })));
        let short = read(&[0, 0, 4, 0, 1, 2, 3]);
        assert!(matches!(short, Err(HeaderError::Truncated { .. })), "{short:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
            let _ = read(&bytes);
        }

        #[test]
        fn fields_survive_the_wire(
            fields in proptest::collection::btree_map("[a-z_]{1,9}", ".{0,40}", 0..9)
        ) {
            let header = Header { fields };
            prop_assert_eq!(read(&header.encode()).unwrap(), header);
        }
    }
}
