//! The settings of a range's storage: typed, checked, and echoed in every manifest.
//!
//! The echo is a list of (name, number); a name that this release does not know is refused, since
//! a setting that is not followed may be one that the stored files depend on.

use types::Compression;

use crate::error::{Error, Result};

/// The settings of one range's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// A memtable of this size asks to be frozen, bytes of memory.
    pub memtable_bytes: u64,
    /// Frozen memtables that may wait for their flush before writers must.
    pub frozen_max: u64,
    /// An SSTable is cut at the first row boundary past this size, bytes.
    pub table_bytes: u64,
    /// A block of cells is cut past this size, bytes before compression.
    pub block_bytes: u64,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Bits of bloom filter per row and per column.
    pub bloom_bits_per_key: u64,
    /// Values of this size and more lie apart from the cells, bytes.
    pub value_block_threshold: u64,
    /// Level 0 is merged into the next when a row may be in this many of its files.
    pub level0_merge_runs: u64,
    /// Writers are slowed from this many on.
    pub level0_slow_runs: u64,
    /// Writers wait from this many on.
    pub level0_stop_runs: u64,
    /// What the first level in use below level 0 should hold at most, bytes.
    pub level_base_bytes: u64,
    /// How many times more each level holds than the one before.
    pub level_ratio: u64,
    /// A merge reads and writes at least this much in a second, and more the more there is to do;
    /// 0: it is never held back.
    pub compaction_bytes_per_second: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            memtable_bytes: 64 << 20,
            frozen_max: 2,
            table_bytes: 64 << 20,
            block_bytes: 4 << 10,
            compression: Compression::Lz4,
            bloom_bits_per_key: 10,
            value_block_threshold: 16 << 10,
            level0_merge_runs: 4,
            level0_slow_runs: 8,
            level0_stop_runs: 20,
            level_base_bytes: 256 << 20,
            level_ratio: 10,
            compaction_bytes_per_second: 32 << 20,
        }
    }
}

/// Names as the manifest echoes them, with the least and the greatest value. Frozen.
const LIMITS: [(&str, u64, u64); 13] = [
    ("memtable_bytes", 4 << 10, 16 << 30),
    ("frozen_max", 1, 64),
    ("table_bytes", 1 << 10, 64 << 30),
    ("block_bytes", 64, 1 << 20),
    ("compression", 0, 1),
    ("bloom_bits_per_key", 1, 64),
    ("value_block_threshold", 1 << 10, 64 << 10),
    ("level0_merge_runs", 2, 1_000),
    ("level0_slow_runs", 2, 10_000),
    ("level0_stop_runs", 2, 10_000),
    ("level_base_bytes", 1 << 10, 1 << 40),
    ("level_ratio", 2, 100),
    ("compaction_bytes_per_second", 0, 1 << 40),
];

/// Names that manifests of former releases echo, with their limits: settings of a way to choose
/// merges that is gone. No stored file depends on them, so they are read and have no effect.
const OBSOLETE: [(&str, u64, u64); 3] =
    [("runs_max", 2, 1_000), ("fan_in", 2, 1_000), ("size_ratio_percent", 1, 10_000)];

impl StoreOptions {
    /// Checks every value.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] names the first bad one and what is allowed.
    pub fn validate(&self) -> Result<()> {
        for ((name, value), (_, least, most)) in self.echo().into_iter().zip(LIMITS) {
            if !(least..=most).contains(&value) {
                let reason = format!("{value} is not from {least} to {most}");
                return Err(Error::InvalidOption { name, reason });
            }
        }
        let rising = [
            ("level0_slow_runs", self.level0_merge_runs, self.level0_slow_runs),
            ("level0_stop_runs", self.level0_slow_runs, self.level0_stop_runs),
        ];
        for (name, before, value) in rising {
            if value <= before {
                let reason = format!("{value} is not more than the one before it, {before}");
                return Err(Error::InvalidOption { name, reason });
            }
        }
        Ok(())
    }

    /// Names and numbers as the manifest keeps them.
    pub fn echo(&self) -> [(&'static str, u64); 13] {
        let values = [
            self.memtable_bytes,
            self.frozen_max,
            self.table_bytes,
            self.block_bytes,
            self.compression as u64,
            self.bloom_bits_per_key,
            self.value_block_threshold,
            self.level0_merge_runs,
            self.level0_slow_runs,
            self.level0_stop_runs,
            self.level_base_bytes,
            self.level_ratio,
            self.compaction_bytes_per_second,
        ];
        std::array::from_fn(|place| (LIMITS[place].0, values[place]))
    }

    /// Sets one option from the manifest's echo. `None` when the name or the value is unknown.
    pub(crate) fn set(&mut self, name: &[u8], value: u64) -> Option<()> {
        let known = |(known, ..): &(&str, u64, u64)| known.as_bytes() == name;
        if let Some((_, least, most)) = OBSOLETE.iter().find(|entry| known(entry)) {
            return (least..=most).contains(&&value).then_some(());
        }
        let place = LIMITS.iter().position(known)?;
        let (_, least, most) = LIMITS[place];
        if !(least..=most).contains(&value) {
            return None;
        }
        match place {
            0 => self.memtable_bytes = value,
            1 => self.frozen_max = value,
            2 => self.table_bytes = value,
            3 => self.block_bytes = value,
            4 if value == 0 => self.compression = Compression::None,
            4 => self.compression = Compression::Lz4,
            5 => self.bloom_bits_per_key = value,
            6 => self.value_block_threshold = value,
            7 => self.level0_merge_runs = value,
            8 => self.level0_slow_runs = value,
            9 => self.level0_stop_runs = value,
            10 => self.level_base_bytes = value,
            11 => self.level_ratio = value,
            _ => self.compaction_bytes_per_second = value,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_read_back_from_their_echo() {
        let options =
            StoreOptions { level_ratio: 3, table_bytes: 5 << 20, ..StoreOptions::default() };
        options.validate().unwrap();
        let mut read = StoreOptions::default();
        for (name, value) in options.echo() {
            read.set(name.as_bytes(), value).unwrap();
        }
        assert_eq!(read, options);
    }

    #[test]
    fn unknown_names_and_values_out_of_bounds_are_refused() {
        let mut options = StoreOptions::default();
        assert_eq!(options.set(b"turbo", 1), None);
        assert_eq!(options.set(b"level_ratio", 1), None);
        options.block_bytes = 0;
        assert_eq!(
            options.validate().unwrap_err().to_string(),
            "option block_bytes: 0 is not from 64 to 1048576"
        );
        let options = StoreOptions { level0_slow_runs: 20, ..StoreOptions::default() };
        assert!(options.validate().is_err());
    }

    #[test]
    fn obsolete_names_are_read_and_change_nothing() {
        let mut options = StoreOptions::default();
        for (name, value) in [("runs_max", 8), ("fan_in", 4), ("size_ratio_percent", 150)] {
            assert_eq!(options.set(name.as_bytes(), value), Some(()));
        }
        assert_eq!(options, StoreOptions::default());
        assert_eq!(options.set(b"fan_in", 1), None, "damage is still damage");
    }
}
