//! One key and its value as bytes: what batches are made of and what memtables keep.
//!
//! ```text
//! entry = key length (varint) · value length (varint) · key · value
//! ```
//!
//! A varint holds seven bits a byte, lowest first; the top bit says that another byte follows.

use types::CellRef;

/// Longest varint of a length: lengths stay below 2^35.
pub(crate) const VARINT_BYTES_MAX: usize = 5;

/// Appends `value` as a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    assert!(value < 1 << 35, "a length past all limits: {value}");
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a varint at the start of `bytes`: the value and the bytes it took.
///
/// `None` when it is cut short, too long, or longer than it need be.
pub(crate) fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            let minimal = i == 0 || byte != 0;
            return minimal.then_some((value, i + 1));
        }
    }
    None
}

/// Appends the two lengths that an entry begins with.
pub(crate) fn put_header(out: &mut Vec<u8>, key_len: usize, value_len: usize) {
    put_varint(out, key_len);
    put_varint(out, value_len);
}

/// Takes the entry at the start of `bytes` apart, and says how long it is. `None` when it is cut.
pub(crate) fn split(bytes: &[u8]) -> Option<(CellRef<'_>, usize)> {
    let (key_len, used) = varint(bytes)?;
    let rest = bytes.get(used..)?;
    let (value_len, more) = varint(rest)?;
    let rest = rest.get(more..)?;
    let key = rest.get(..key_len)?;
    let value = rest.get(key_len..)?.get(..value_len)?;
    Some((CellRef { key, value }, used + more + key_len + value_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_a_cut_one_does_not() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 2_100_000] {
            let (key, value) = (vec![b'k'; len / 2], vec![b'v'; len]);
            let mut out = Vec::new();
            put_header(&mut out, key.len(), value.len());
            out.extend_from_slice(&key);
            out.extend_from_slice(&value);
            let (cell, used) = split(&out).unwrap();
            assert_eq!((cell.key, cell.value), (&key[..], &value[..]));
            assert_eq!(used, out.len());
            assert!(split(&out[..out.len() - 1]).is_none());
        }
    }

    #[test]
    fn a_varint_longer_than_it_need_be_is_refused() {
        assert_eq!(varint(&[0x80, 0x01]), Some((128, 2)));
        assert_eq!(varint(&[0x81, 0x00]), None);
        assert_eq!(varint(&[0xff; 8]), None);
        assert_eq!(varint(&[]), None);
    }
}
