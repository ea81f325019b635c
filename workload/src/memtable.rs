//! A memtable beside an ordered map of the same keys and values, each owning its bytes.
//!
//! Entries are small, as those of a wide column store mostly are: a row of 20 digits, a qualifier
//! of 6 bytes, a value of 10. They come in random order, one batch each, from one thread.

use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use env::Env;
use lsm::{Batch, Memtable, MemtableOptions};
use types::{FamilyId, Mutation, RowMutations, SeqNo, Timestamp};

use crate::engine::{Moment, Rows, kernel_number};
use crate::report::Samples;
use crate::{Options, Result};

const VALUE_BYTES: usize = 10;
/// Entries of the memtable before.
const LEARNED_FROM: usize = 10_000;
const CONTENDERS: [&str; 2] = ["memtable", "SkipMap<Bytes, Bytes>"];

/// Measures each contender in turn, each time in a process of its own: what one leaves of the heap
/// would be taken by the other.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut samples = Samples::default();
    for _ in 0..options.rounds {
        for name in CONTENDERS {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["--memtable-contender", name, "--keys", &options.keys.to_string()]);
            let output = String::from_utf8(command.output()?.stdout)?;
            let mut numbers = output.split_whitespace();
            let mut number = || -> Result<f64> { Ok(numbers.next().ok_or("no output")?.parse()?) };
            samples.add(&insert(name), number()?);
            samples.add(&bytes(name), number()?);
        }
    }
    samples.print();
    let [memtable, map] = CONTENDERS;
    samples.print_ratio(&insert(memtable), &insert(map));
    samples.print_ratio(&bytes(memtable), &bytes(map));
    Ok(())
}

fn insert(name: &str) -> String {
    format!("{name}, insert, cpu ns")
}

fn bytes(name: &str) -> String {
    format!("{name}, bytes per entry")
}

/// Fills one contender and prints nanoseconds and bytes an entry.
pub(crate) fn measure_one(name: &str, keys: u64) -> Result<()> {
    let env = Env::system();
    let batches = batches(keys);
    // What keys share is learned from one memtable to the next.
    let first = batches.len().min(LEARNED_FROM);
    let shared = fill(&batches[..first], None).learned_prefix();
    let (before, from) = (resident()?, Moment::now(&env));
    let span;
    let after;
    if name == CONTENDERS[0] {
        let memtable = fill(&batches, Some(shared));
        (span, after) = (from.until_now(&env, keys), resident()?);
        drop(memtable);
    } else {
        let map = SkipMap::new();
        for cell in batches.iter().flat_map(Batch::cells) {
            map.insert(Bytes::copy_from_slice(cell.key), Bytes::copy_from_slice(cell.value));
        }
        (span, after) = (from.until_now(&env, keys), resident()?);
        drop(map);
    }
    println!(
        "{:.0} {:.1}",
        span.cpu_micros() * 1e3,
        after.saturating_sub(before) as f64 / keys as f64
    );
    Ok(())
}

fn fill(batches: &[Batch], shared_prefix: Option<Vec<u8>>) -> Arc<Memtable> {
    let memtable = Memtable::new(MemtableOptions { id: 1, shared_prefix });
    for batch in batches {
        memtable.insert_batch(batch);
    }
    memtable
}

fn batches(keys: u64) -> Vec<Batch> {
    let rows = Rows::new(keys, VALUE_BYTES);
    let batch = |number: u64| {
        let cell = Mutation::SetCell {
            family: FamilyId::new(1),
            qualifier: Bytes::from_static(b"column"),
            timestamp: Some(Timestamp::ZERO),
            value: Bytes::from_static(b"0123456789"),
        };
        let row = RowMutations { row: rows.key(number), mutations: vec![cell] };
        let mut batch = Batch::encode(&[row]);
        batch.sequence(SeqNo::ZERO.advance(number + 1), Timestamp::ZERO);
        batch
    };
    (0..keys).map(batch).collect()
}

/// Bytes of memory that the process has touched.
fn resident() -> Result<u64> {
    Ok(kernel_number("/proc/self/status", "VmRSS:")? << 10)
}
