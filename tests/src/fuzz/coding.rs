//! Checksums as the formats' texts say they are computed, for forging them.

use types::FileId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Writes a number at `at`, little-endian.
pub(super) fn put_u64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// Reads a number from `at`, little-endian.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// Makes the checksum of an SSTable's block fit what it covers: `len` bytes of payload from
/// `offset`, kind and coding.
pub(super) fn forge_block(bytes: &mut [u8], file: FileId, offset: usize, len: usize) {
    let mut id = [0; 16];
    put_u64(&mut id, 0, file.session);
    put_u64(&mut id, 8, file.counter);
    let seed = xxh3_64(&id) ^ offset as u64;
    let sum = xxh3_64_with_seed(&bytes[offset..offset + len + 2], seed);
    put_u64(bytes, offset + len + 2, sum);
}

/// Bytes of an SSTable's footer.
pub(super) const FOOTER_BYTES: usize = 96;

/// Makes the checksum of an SSTable's footer fit.
pub(super) fn forge_footer(bytes: &mut [u8]) {
    let file_len = bytes.len();
    let footer = &mut bytes[file_len - FOOTER_BYTES..];
    let sum = xxh3_64_with_seed(&footer[..80], file_len as u64);
    put_u64(footer, 80, sum);
}

/// Makes the checksum that ends a manifest fit.
pub(super) fn forge_tail(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(8) {
        let sum = xxh3_64(&bytes[..at]);
        put_u64(bytes, at, sum);
    }
}
