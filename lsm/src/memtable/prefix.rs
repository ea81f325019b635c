//! Eight bytes of a key that mostly decide a comparison, taken where keys begin to differ.
//!
//! The keys of a range share their first bytes. After a shared part P has been chosen, a key maps
//! to 0 if it sorts below all keys that begin with P, to the largest number if above, and else to
//! the eight bytes after P (zeros where the key ends). The map never reverses the order, so any P
//! is correct; equal numbers are decided by the whole keys. A good P only makes that rare.

/// The number that stands for `key` when `shared` has been chosen as P.
pub(super) fn prefix_after(shared: &[u8], key: &[u8]) -> u64 {
    let Some(rest) = key.strip_prefix(shared) else {
        return if key < shared { 0 } else { u64::MAX };
    };
    let mut bytes = [0; 8];
    let len = rest.len().min(8);
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

/// What two keys begin with in common.
pub(crate) fn common<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    let len = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    &a[..len]
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn the_map_never_reverses_the_order_whatever_was_chosen() {
        let mut random = StdRng::seed_from_u64(23);
        let text = |random: &mut StdRng, len_max: usize| -> Vec<u8> {
            let len = random.random_range(0..=len_max);
            (0..len).map(|_| [0, 1, 0xff][random.random_range(0..3)]).collect()
        };
        let mut decided = 0;
        for _ in 0..100_000 {
            let shared = text(&mut random, 4);
            let (a, b) = (text(&mut random, 14), text(&mut random, 14));
            let (x, y) = (prefix_after(&shared, &a), prefix_after(&shared, &b));
            let order = x.cmp(&y).then_with(|| a.cmp(&b));
            assert_eq!(order, a.cmp(&b), "{shared:?} {a:?} {b:?}");
            decided += usize::from(x != y);
        }
        assert!(decided > 10_000, "the map decides almost nothing");
    }
}
