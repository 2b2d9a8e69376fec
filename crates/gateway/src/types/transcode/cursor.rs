// SPDX-License-Identifier: Apache-2.0
//! Readers and writers of both serializations, which differ in their [`Layout`].

use super::error::TranscodeError;
use std::borrow::Cow;

/// The arrangement of values in a message.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Numbers are aligned to their size, up to this.
    max_alignment: usize,
    /// Bytes after a text, counted in its length.
    terminator: usize,
}

impl Layout {
    /// No alignment, and no terminator.
    pub const ROS1: Self = Self { max_alignment: 1, terminator: 0 };
    /// XCDR version 1; offsets start behind the encapsulation.
    pub const CDR: Self = Self { max_alignment: 8, terminator: 1 };

    fn padding(self, at: usize, size: usize) -> usize {
        // All alignments are powers of two.
        let alignment = size.min(self.max_alignment);
        at.wrapping_neg() & (alignment - 1)
    }
}

/// Reads values from untrusted bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    layout: Layout,
    swapped: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, at: 0, layout, swapped: false }
    }

    /// For numbers in big-endian order.
    pub fn with_swapped_bytes(self) -> Self {
        Self { swapped: true, ..self }
    }

    /// Bytes not yet read.
    pub fn remaining_bytes(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether numbers are in big-endian order.
    pub fn is_swapped(&self) -> bool {
        self.swapped
    }

    /// Passes over bytes.
    pub fn skip(&mut self, count: u64) -> Result<(), TranscodeError> {
        self.take(usize::try_from(count).unwrap_or(usize::MAX)).map(|_| ())
    }

    /// The next bytes, as they are.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], TranscodeError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            let left = self.remaining_bytes();
            return Err(TranscodeError::new(format!("{count} bytes wanted, {left} are left")));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, size: usize) -> Result<(), TranscodeError> {
        self.take(self.layout.padding(self.at, size)).map(|_| ())
    }

    /// `count` numbers of `size` bytes, little-endian.
    pub fn numbers(&mut self, size: u8, count: usize) -> Result<Cow<'a, [u8]>, TranscodeError> {
        let size = usize::from(size);
        if count == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        self.align(size)?;
        let bytes = self.take(count.saturating_mul(size))?;
        if !self.swapped || size == 1 {
            return Ok(Cow::Borrowed(bytes));
        }
        Ok(Cow::Owned(bytes.chunks_exact(size).flat_map(|it| it.iter().rev().copied()).collect()))
    }

    fn number(&mut self) -> Result<usize, TranscodeError> {
        self.align(4)?;
        let bytes = self.take(4)?.try_into().unwrap_or_default();
        let number =
            if self.swapped { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        Ok(number as usize)
    }

    /// The number of the elements that follow.
    pub fn length(&mut self) -> Result<usize, TranscodeError> {
        self.number()
    }

    /// A string without its terminator.
    pub fn string(&mut self) -> Result<&'a [u8], TranscodeError> {
        let length = self.number()?;
        let text = self.take(length)?;
        if self.layout.terminator == 0 {
            return Ok(text);
        }
        match text.split_last() {
            Some((0, text)) => Ok(text),
            // Some writers send an empty text without its NUL.
            None => Ok(text),
            Some((last, _)) => {
                Err(TranscodeError::new(format!("text ends with 0x{last:02x}; allowed: 0x00")))
            }
        }
    }

    /// UTF-16 units of a wide text, little-endian; ROS 2 only.
    pub fn wide_text(&mut self) -> Result<Cow<'a, [u8]>, TranscodeError> {
        let units = self.number()?;
        self.numbers(2, units)
    }
}

/// Appends values up to a limit.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    /// The start of offsets.
    origin: usize,
    layout: Layout,
    limit: usize,
    /// Structs and fields that may still be written. Some take no bytes, and a definition can
    /// contain billions of them.
    parts_left: usize,
}

impl Writer {
    /// Starts with `head`; offsets start behind it.
    pub fn new(head: &[u8], layout: Layout, limit: usize) -> Self {
        Self { bytes: head.to_vec(), origin: head.len(), layout, limit, parts_left: limit }
    }

    /// Counts a struct and its fields, which may be thousands without bytes.
    pub fn spend(&mut self, fields: usize) -> Result<(), TranscodeError> {
        let limit = self.limit;
        let left = self.parts_left.checked_sub(1 + fields);
        self.parts_left = left.ok_or_else(|| TranscodeError::new(format!("over {limit} parts")))?;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes written so far, without the head.
    pub fn position(&self) -> usize {
        self.bytes.len() - self.origin
    }

    /// Removes bytes from the end.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Checks that more bytes are within the limit.
    fn check(&self, more: usize) -> Result<(), TranscodeError> {
        let limit = self.limit;
        match self.bytes.len().saturating_add(more) > limit {
            true => Err(TranscodeError::new(format!("grows beyond {limit} bytes"))),
            false => Ok(()),
        }
    }

    /// Appends bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), TranscodeError> {
        self.check(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn align(&mut self, size: u8) -> Result<(), TranscodeError> {
        let padding = self.layout.padding(self.position(), usize::from(size));
        self.put(&[0; 8][..padding])
    }

    /// `count` numbers of `size` bytes, each 0.
    pub fn zeros(&mut self, size: u8, count: usize) -> Result<(), TranscodeError> {
        if count == 0 {
            return Ok(());
        }
        self.align(size)?;
        let bytes = count.saturating_mul(usize::from(size));
        self.check(bytes)?;
        self.bytes.resize(self.bytes.len() + bytes, 0);
        Ok(())
    }

    /// Numbers of `size` bytes each.
    pub fn numbers(&mut self, size: u8, numbers: &[u8]) -> Result<(), TranscodeError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.align(size)?;
        self.put(numbers)
    }

    /// Writes the number of the elements that follow.
    pub fn length(&mut self, count: usize) -> Result<(), TranscodeError> {
        let Ok(count) = u32::try_from(count) else {
            return Err(TranscodeError::new(format!("{count} elements; allowed: {}", u32::MAX)));
        };
        self.numbers(4, &count.to_le_bytes())
    }

    pub fn string(&mut self, text: &[u8]) -> Result<(), TranscodeError> {
        self.length(text.len() + self.layout.terminator)?;
        self.put(text)?;
        self.put(&[0][..self.layout.terminator])
    }

    pub fn wide_text(&mut self, units: &[u8]) -> Result<(), TranscodeError> {
        self.length(units.len() / 2)?;
        self.numbers(2, units)
    }
}
