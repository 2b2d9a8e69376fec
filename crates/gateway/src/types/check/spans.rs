// SPDX-License-Identifier: Apache-2.0
//! Sizes of values that depend on their place: CDR aligns numbers to their size, at most to 8.

/// Places that alignment distinguishes.
const PLACES: usize = 8;
/// Stands for all sizes beyond any message; a multiple of [`PLACES`].
const SATURATED: u64 = 1 << 40;

/// Bytes from each place, modulo [`PLACES`], to the end of a value, with its alignment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span([u64; PLACES]);

impl Span {
    /// A value without alignment.
    pub fn unaligned(size: usize) -> Self {
        Self([size as u64; PLACES])
    }

    /// A number that is aligned to its size.
    pub fn aligned(size: usize) -> Self {
        let bytes = |place: usize| (place.next_multiple_of(size) - place + size) as u64;
        Self(std::array::from_fn(bytes))
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes of the value from a place in a message.
    pub fn bytes_at(&self, place: usize) -> u64 {
        self.0[place % PLACES]
    }

    /// This value and the next.
    pub fn followed_by(&self, next: Self) -> Self {
        Self(std::array::from_fn(|place| {
            let bytes = self.0[place];
            sum(bytes, next.0[(place + bytes as usize) % PLACES])
        }))
    }

    /// This value `count` times.
    pub fn repeated(&self, count: u64) -> Self {
        Self(std::array::from_fn(|place| self.repeated_at(place, count)))
    }

    /// Bytes of the value `count` times from a place. After at most [`PLACES`] values the places
    /// repeat, so the time does not depend on `count`.
    pub fn repeated_at(&self, place: usize, count: u64) -> u64 {
        let (mut done, mut bytes) = (0, 0);
        let mut seen = [None; PLACES];
        while done < count {
            let here = (place + bytes as usize) % PLACES;
            if let Some((done_before, bytes_before)) = seen[here].replace((done, bytes)) {
                let (values, size): (u64, u64) = (done - done_before, bytes - bytes_before);
                let times = (count - done) / values;
                bytes = sum(bytes, size.saturating_mul(times));
                done += times * values;
            }
            if done < count {
                bytes = sum(bytes, self.0[(place + bytes as usize) % PLACES]);
                done += 1;
            }
        }
        bytes
    }
}

fn sum(one: u64, other: u64) -> u64 {
    let sum = one.saturating_add(other);
    if sum >= SATURATED { SATURATED } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number's place by counting one value after another.
    fn place_by_counting(span: Span, place: usize, count: u64) -> u64 {
        (0..count).fold(0, |bytes, _| bytes + span.bytes_at(place + bytes as usize))
    }

    #[test]
    fn repeated_values_are_read_in_sequence() {
        let odd = Span::aligned(1).followed_by(Span::aligned(2)).followed_by(Span::aligned(1));
        let wide = Span::aligned(8).followed_by(Span::aligned(1)).followed_by(Span::aligned(4));
        for span in [odd, wide, Span::aligned(1), Span::unaligned(3), Span::default()] {
            for place in 0..PLACES {
                for count in 0..40 {
                    let expected = place_by_counting(span, place, count);
                    assert_eq!(
                        span.repeated_at(place, count),
                        expected,
                        "{span:?} {place} {count}"
                    );
                    assert_eq!(span.repeated(count).bytes_at(place), expected);
                }
            }
        }
        assert_eq!(odd.bytes_at(0), 5);
        assert_eq!(odd.bytes_at(5), 4);
    }

    #[test]
    fn repeated_values_are_counted_in_one_step() {
        let many = Span::aligned(8).repeated(u32::MAX.into());
        assert_eq!(many.bytes_at(0), 8 * u64::from(u32::MAX));
        let more = many.repeated(u32::MAX.into()).followed_by(many);
        assert_eq!(more.bytes_at(3), SATURATED);
        assert_eq!(Span::default().repeated(u32::MAX.into()), Span::default());
    }
}
