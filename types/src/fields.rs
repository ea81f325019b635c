//! Reads stored bytes, which may be damaged or forged, field by field.

/// Little-endian numbers and byte strings, front to back, never past the end: `None` says that the
/// bytes end too early.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Reads `stored` from its start.
    pub fn new(stored: &'a [u8]) -> Fields<'a> {
        Fields(stored)
    }

    /// What is not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Is everything read?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// A 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A 128-bit number.
    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A byte string: its length as 32 bits, then the bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_and_a_length_past_the_end_is_refused() {
        let stored = [7, 1, 0, 2, 0, 0, 0, b'h', b'i', 9, 0, 0, 0, b'x'];
        let mut fields = Fields::new(&stored);
        assert_eq!((fields.u8(), fields.u16()), (Some(7), Some(1)));
        assert_eq!(fields.bytes(), Some(&b"hi"[..]));
        assert_eq!(fields.bytes(), None, "nine bytes are said to follow, one does");
        assert_eq!(fields.rest(), b"x");
        assert_eq!((fields.u32(), fields.u64(), fields.u128()), (None, None, None));
        assert_eq!(fields.take(1), Some(&b"x"[..]));
        assert!(fields.is_empty());
    }
}
