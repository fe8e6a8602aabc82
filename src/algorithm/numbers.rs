//! Sequences of little-endian numbers, as in values, calls and answers of scripts.
//!
//! A format is the bytes of each number.

use crate::error::StoreError;

/// The largest number of fewer than eight bytes: doubles hold it exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// Something else has written the value.
pub(super) fn unrecognized() -> StoreError {
    StoreError::new("the value was not written by tower-throttle").unrecognized_value()
}

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn put<const N: usize>(&mut self, format: [usize; N], numbers: [u64; N]) {
        for (bytes, number) in format.into_iter().zip(numbers) {
            let number = if bytes < 8 {
                number.min(LARGEST)
            } else {
                number
            };
            // Copying all bytes takes no call.
            let end = self.0.len() + bytes;
            self.0.extend_from_slice(&number.to_le_bytes());
            self.0.truncate(end);
        }
    }
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) = (self.0.split_at_checked(count)).ok_or_else(unrecognized)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn numbers<const N: usize>(
        &mut self,
        format: [usize; N],
    ) -> Result<[u64; N], StoreError> {
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(format) {
            let bytes = self.bytes(bytes)?.iter().rev();
            *number = bytes.fold(0, |number, &byte| number << 8 | u64::from(byte));
        }
        Ok(numbers)
    }

    /// So many times the numbers of a format.
    pub(crate) fn list<const N: usize>(
        &mut self,
        count: usize,
        format: [usize; N],
    ) -> Result<impl Iterator<Item = [u64; N]> + use<'a, N>, StoreError> {
        let mut list = Reader(self.bytes(count * format.iter().sum::<usize>())?);
        Ok(std::iter::from_fn(move || list.numbers(format).ok()).take(count))
    }
}
