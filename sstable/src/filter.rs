//! Bloom filters of rows and columns. The format is FORMAT.md's; `fastbloom` is its present
//! implementation, pinned, with golden bytes below.

use fastbloom::BloomFilter;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::coding::u64_at;
use crate::error::Malformed;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
const PROBES_MAX: u8 = 30;
/// The seed that this release writes; a reader takes the stored one.
const SEED: u64 = 0x7465_7075_6900_0001;

/// What an item of a filter is. The numbers are part of the hashes: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Domain {
    Row = 1,
    Column = 2,
    RowTombstone = 3,
    FamilyTombstone = 4,
}

/// Collects the hashes of one filter's items.
#[derive(Default)]
pub(crate) struct FilterBuilder {
    hashes: Vec<u64>,
}

impl FilterBuilder {
    pub(crate) fn add(&mut self, domain: Domain, item: &[u8]) {
        self.hashes.push(hash(SEED, domain, item));
    }

    /// The filter block's payload; `None` without items or bits.
    pub(crate) fn finish(self, bits_per_key: u32) -> Option<Vec<u8>> {
        if self.hashes.is_empty() || bits_per_key == 0 {
            return None;
        }
        let words = (self.hashes.len() * bits_per_key as usize).div_ceil(64);
        let probes = (f64::from(bits_per_key) * std::f64::consts::LN_2).round();
        let probes = (probes as u8).clamp(1, PROBES_MAX);
        let mut bloom = BloomFilter::from_vec(vec![0; words]).seed(&0).hashes(probes.into());
        for hash in self.hashes {
            bloom.insert_hash(hash);
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + 8 * words);
        out.extend_from_slice(&[VERSION, probes, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&SEED.to_le_bytes());
        for word in bloom.as_slice() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        Some(out)
    }
}

/// A filter in memory: says "no" or "maybe".
pub(crate) struct Filter {
    bloom: BloomFilter,
    seed: u64,
}

impl Filter {
    pub(crate) fn decode(payload: &[u8]) -> std::result::Result<Filter, Malformed> {
        let wrong = Malformed("a filter is damaged");
        let header = payload.get(..8).ok_or(wrong)?;
        let seed = u64_at(payload, 8).ok_or(wrong)?;
        let words = &payload[HEADER_BYTES..];
        let probes = header[1];
        let known = header[0] == VERSION && header[2..] == [0; 6];
        let plausible = (1..=PROBES_MAX).contains(&probes);
        if !known || !plausible || words.is_empty() || !words.len().is_multiple_of(8) {
            return Err(wrong);
        }
        let words: Option<Vec<u64>> =
            (0..words.len()).step_by(8).map(|at| u64_at(words, at)).collect();
        let words = words.ok_or(wrong)?;
        Ok(Filter { bloom: BloomFilter::from_vec(words).seed(&0).hashes(probes.into()), seed })
    }

    #[inline]
    pub(crate) fn may_contain(&self, domain: Domain, item: &[u8]) -> bool {
        self.bloom.contains_hash(hash(self.seed, domain, item))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bloom.num_bits() / 8
    }

    /// Probes per item and bits in all, for people.
    pub(crate) fn shape(&self) -> (u32, usize) {
        (self.bloom.num_hashes(), self.bloom.num_bits())
    }
}

#[inline]
fn hash(seed: u64, domain: Domain, item: &[u8]) -> u64 {
    xxh3_64_with_seed(item, seed ^ domain as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(count: u64) -> Vec<u8> {
        let mut builder = FilterBuilder::default();
        for n in 0..count {
            builder.add(Domain::Row, &n.to_be_bytes());
        }
        builder.finish(10).unwrap()
    }

    #[test]
    fn the_bits_are_those_of_the_format() {
        let hex: String = filter_of(12).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("../tests/golden/filter.hex").trim());
    }

    #[test]
    fn the_probe_sequence_is_the_written_one() {
        let payload = filter_of(12);
        let words: Vec<u64> =
            (16..payload.len()).step_by(8).map(|at| u64_at(&payload, at).unwrap()).collect();
        let mut expected = vec![0u64; words.len()];
        let bits = 64 * words.len() as u128;
        for n in 0..12u64 {
            let h = hash(SEED, Domain::Row, &n.to_be_bytes());
            let mut g = h;
            for _ in 0..payload[1] {
                let bit = ((u128::from(g) * bits) >> 64) as usize;
                expected[bit / 64] |= 1 << (bit % 64);
                g = g.rotate_left(5).wrapping_add(h.wrapping_mul(0x517c_c1b7_2722_0a95));
            }
        }
        assert_eq!(words, expected);
    }

    #[test]
    fn items_are_found_and_others_are_seldom_taken_for_them() {
        let filter = Filter::decode(&filter_of(20_000)).unwrap();
        for n in 0..20_000u64 {
            assert!(filter.may_contain(Domain::Row, &n.to_be_bytes()));
        }
        let wrong = (20_000..120_000u64)
            .filter(|n| filter.may_contain(Domain::Row, &n.to_be_bytes()))
            .count();
        assert!(wrong < 1_500, "{wrong} of 100,000 absent items");
        let other =
            (0..20_000u64).filter(|n| filter.may_contain(Domain::Column, &n.to_be_bytes())).count();
        assert!(other < 300, "domains are apart: {other} of 20,000");
    }

    #[test]
    fn a_damaged_filter_is_refused_without_panic() {
        let good = filter_of(12);
        assert!(Filter::decode(&good).is_ok());
        for len in 0..HEADER_BYTES + 1 {
            assert!(Filter::decode(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(Filter::decode(&good[..good.len() - 1]).is_err());
        for (place, byte) in [(0, 2), (1, 0), (1, 31), (1, 255), (2, 1)] {
            let mut bad = good.clone();
            bad[place] = byte;
            assert!(Filter::decode(&bad).is_err(), "byte {place} = {byte}");
        }
    }
}
