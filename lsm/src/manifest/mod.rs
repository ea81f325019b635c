#![doc = include_str!("../../MANIFEST_FORMAT.md")]

mod chain;
mod codec;
mod input;

pub(crate) use chain::{Chain, Outcome};

use std::fmt::Write;

use storage::Path;
use types::{Epoch, RangeId, RowRange, SessionId, TableId};

use crate::error::Result;
use crate::options::StoreOptions;
use crate::version::Version;

/// The format version that this release writes.
pub(crate) const FORMAT: u32 = 1;

/// One stored state of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The table that the range is of.
    pub table: TableId,
    /// The range.
    pub range: RangeId,
    /// Counts the range's manifests, from 1.
    pub number: u64,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Random bits of this commit alone.
    pub writer: u128,
    /// The server run that committed it.
    pub session: SessionId,
    /// The checksum of the manifest before; 0 for the first.
    pub previous: u64,
    /// The range's rows.
    pub bounds: RowRange,
    /// The settings it was written under.
    pub options: StoreOptions,
    /// The SSTables.
    pub version: Version,
    /// The oldest format version that may commit a manifest after this one.
    pub min_writer: u32,
}

impl Manifest {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads the stored form of the manifest that lies at `path` (for the error texts, and its
    /// number must be the name's).
    ///
    /// # Errors
    /// Damage, or a format newer than this release's.
    pub fn decode(path: &Path, stored: &[u8]) -> Result<Manifest> {
        codec::decode(path, stored)
    }

    /// The checksum that the stored form ends with.
    pub(crate) fn checksum(stored: &[u8]) -> u64 {
        let tail = stored.last_chunk::<8>();
        u64::from_le_bytes(*tail.expect("an encoded manifest ends with its checksum"))
    }
}

const PREFIX: &str = "manifest-";
const DIGITS: usize = 20;

/// The file name of manifest `number`.
pub fn manifest_name(number: u64) -> String {
    let mut name = String::with_capacity(PREFIX.len() + DIGITS);
    write!(name, "{PREFIX}{number:020}").expect("a string takes all text");
    name
}

/// The number in a manifest's file name; `None` for other files.
pub fn manifest_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}
