//! Fuzzers: named, seeded programs that feed decoders what no writer of ours would write.
//!
//! 1. A case is one call with one random generator; case `n` of a run has the seed `first + n`, so
//!    any case is repeated by its own number.
//! 2. A case makes something valid, damages it, and reads it back. Where checksums would stop the
//!    damage at the door, half of the cases *forge* them, as the formats' texts say how.
//!    `fold` and `store_vs_model` damage nothing: they run a range's storage and a whole server
//!    (see [`crate::metamorphic`]) against a model.
//! 3. Property: the truth or an error; never a panic, never more memory than the program's limit.
//!
//! `canary` fails on purpose: whoever runs the fuzzers first sees that a failure is noticed.

mod chunks;
mod coding;
mod coordination;
mod fold;
mod keys;
mod log;
mod manifest;
mod table;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// One fuzzer.
#[derive(Clone, Copy)]
pub struct Fuzzer {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one case; panics when the property does not hold.
    pub case: fn(&mut StdRng),
    /// How many cases the smoke run takes: a second or two.
    pub smoke: u64,
}

/// The fuzzer that fails on purpose.
pub const CANARY: Fuzzer = Fuzzer { name: "canary", case: canary, smoke: 1 };

/// All fuzzers that must not fail.
pub const FUZZERS: &[Fuzzer] = &[
    Fuzzer { name: "key_order", case: keys::key_order, smoke: 100_000 },
    Fuzzer { name: "batch", case: keys::batch, smoke: 50_000 },
    Fuzzer { name: "log_frames", case: log::log_frames, smoke: 1_500 },
    Fuzzer { name: "block", case: table::block, smoke: 1_500 },
    Fuzzer { name: "footer", case: table::footer, smoke: 3_000 },
    Fuzzer { name: "table_bytes", case: table::table_bytes, smoke: 1_500 },
    Fuzzer { name: "manifest", case: manifest::manifest, smoke: 20_000 },
    Fuzzer { name: "chunks", case: chunks::chunks, smoke: 50_000 },
    Fuzzer { name: "coordination_snapshot", case: coordination::snapshot, smoke: 50_000 },
    Fuzzer { name: "coordination_record", case: coordination::record, smoke: 50_000 },
    Fuzzer { name: "fold", case: fold::fold, smoke: 400 },
    Fuzzer { name: "store_vs_model", case: store_vs_model, smoke: 50 },
];

impl Fuzzer {
    /// The fuzzer called `name`.
    pub fn find(name: &str) -> Option<Fuzzer> {
        let mut all = FUZZERS.iter().chain([&CANARY]);
        all.find(|fuzzer| fuzzer.name == name).copied()
    }

    /// Runs `cases` cases from the one whose seed is `first`. At the first that fails it returns
    /// that case's seed.
    ///
    /// # Errors
    /// The seed of the case that failed.
    pub fn run(&self, first: u64, cases: u64) -> Result<(), u64> {
        for seed in (0..cases).map(|number| first.wrapping_add(number)) {
            let case = self.case;
            let caught = std::panic::catch_unwind(|| case(&mut StdRng::seed_from_u64(seed)));
            if caught.is_err() {
                return Err(seed);
            }
        }
        Ok(())
    }
}

fn store_vs_model(random: &mut StdRng) {
    if let Err(violation) = crate::metamorphic::check(random, 120) {
        panic!("{violation}");
    }
}

fn canary(random: &mut StdRng) {
    let number: u64 = random.random();
    assert!(number.count_ones() > 64, "the canary fails on purpose");
}

/// Runs a case's async part.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(future)
}

/// Damages `bytes` in a few of the ways that disks and bugs do, keeping their length.
fn damage(random: &mut StdRng, bytes: &mut [u8]) {
    for _ in 0..random.random_range(1..4) {
        let Some(last) = bytes.len().checked_sub(1) else {
            return;
        };
        let at = random.random_range(0..=last);
        let run = at..(at + random.random_range(1..9)).min(bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes[run].fill(0xff),
            3 => bytes[run].fill(0),
            _ => {
                let from = random.random_range(0..=last);
                let len = run.len().min(bytes.len() - from).min(bytes.len() - at);
                bytes.copy_within(from..from + len, at);
            }
        }
    }
}

/// Up to `len_max` bytes, of few values so that equal and neighbouring ones are common.
fn short_bytes(random: &mut StdRng, len_max: usize) -> Vec<u8> {
    let len = random.random_range(0..=len_max);
    let byte = |random: &mut StdRng| [0, 1, b'a', b'b', 0xfe, 0xff][random.random_range(0..6)];
    (0..len).map(|_| byte(random)).collect()
}
