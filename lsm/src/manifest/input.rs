//! Reads stored numbers and byte strings; every length is checked before anything is allocated.

use crate::error::Damage;

type Result<T> = std::result::Result<T, Damage>;

/// What is left to read of some stored bytes.
pub(super) struct Input<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Input<'a> {
    /// Reads `stored`, which lies at `offset` of its file.
    pub(super) fn new(stored: &'a [u8], offset: usize) -> Input<'a> {
        Input { rest: stored, offset }
    }

    /// The damage `what`, here.
    pub(super) fn damage(&self, what: &'static str) -> Damage {
        Damage { offset: self.offset, what }
    }

    /// Is everything read?
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Offset of the next byte in its file.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| self.damage("ends too early"))?;
        self.rest = rest;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A 16-bit number.
    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A 32-bit number.
    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A 64-bit number.
    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A 128-bit number.
    pub(super) fn u128(&mut self) -> Result<u128> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A count of things of at least `least_bytes` each: one that cannot fit is damage.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(least_bytes) > self.rest.len() {
            return Err(self.damage("a count is larger than what follows"));
        }
        Ok(count)
    }

    /// A byte string: its length as 32 bits, then the bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// A flag: 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.damage("a flag is neither 0 nor 1")),
        }
    }
}

/// Appends a byte string: its length as 32 bits, then the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a count as 32 bits.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("counts and lengths in a manifest fit 32 bits");
    out.extend_from_slice(&count.to_le_bytes());
}
