//! The rows of an engine measurement: 20-digit keys in random order, values of compressible text.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Keys are drawn out of this many times as many, so that some come twice.
const SPREAD: u64 = 10;
const KEY_BYTES: usize = 20;
const TEXT_BYTES: usize = 8 << 20;
const WORDS: usize = 2_000;

/// Keys and values of a measurement.
pub(crate) struct Rows {
    keys: u64,
    text: Bytes,
    value_bytes: usize,
}

impl Rows {
    pub(crate) fn new(keys: u64, value_bytes: usize) -> Rows {
        Rows { keys, text: Bytes::from(text()), value_bytes }
    }

    /// The key that is put as the `number`th.
    pub(crate) fn key(&self, number: u64) -> Bytes {
        Bytes::copy_from_slice(&self.digits(number))
    }

    /// A key beside the `number`th that nobody puts.
    pub(crate) fn absent_key(&self, number: u64) -> Bytes {
        let mut key = self.digits(number);
        key[KEY_BYTES - 1] = b'x';
        Bytes::copy_from_slice(&key)
    }

    fn digits(&self, number: u64) -> [u8; KEY_BYTES] {
        let mut left = mix(number) % (self.keys * SPREAD);
        let mut key = [b'0'; KEY_BYTES];
        for digit in key.iter_mut().rev() {
            *digit += (left % 10) as u8;
            left /= 10;
        }
        key
    }

    /// A number of a put.
    pub(crate) fn any(&self, random: &mut SmallRng) -> u64 {
        random.random_range(0..self.keys)
    }

    /// A value.
    pub(crate) fn value(&self, random: &mut SmallRng) -> Bytes {
        let start = random.random_range(0..TEXT_BYTES - self.value_bytes);
        self.text.slice(start..start + self.value_bytes)
    }

    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.keys * (KEY_BYTES + self.value_bytes) as u64
    }
}

/// Spreads neighbouring numbers over all: each bit of the outcome depends on each bit of `number`.
fn mix(number: u64) -> u64 {
    let mut mixed = number;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        mixed ^= mixed >> 33;
        mixed = mixed.wrapping_mul(factor);
    }
    mixed ^ (mixed >> 33)
}

/// Words of letters of which the first are the most frequent, frequent words among them.
fn text() -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(1);
    let word = |random: &mut SmallRng| -> Vec<u8> {
        let letter = |random: &mut SmallRng| {
            b'a' + random.random_range(0..26_u8).min(random.random_range(0..26_u8))
        };
        (0..random.random_range(2..11)).map(|_| letter(random)).collect()
    };
    let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(&mut random)).collect();
    let mut text = Vec::with_capacity(TEXT_BYTES + 16);
    while text.len() < TEXT_BYTES {
        let place = random.random::<f64>().powi(3) * WORDS as f64;
        text.extend_from_slice(&words[place as usize]);
        text.push(b' ');
    }
    text.truncate(TEXT_BYTES);
    text
}
