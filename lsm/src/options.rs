//! The settings of a range's storage: typed, checked, and echoed in every manifest.
//!
//! The echo is a list of (name, number); a name that this release does not know is refused, since
//! a setting that is not followed may be one that the stored files depend on.

use crate::error::{Error, Result};

/// How blocks of cells are compressed. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockCompression {
    /// Not at all.
    None = 0,
    /// LZ4, where it pays.
    Lz4 = 1,
}

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
    pub compression: BlockCompression,
    /// Bits of bloom filter per row and per column.
    pub bloom_bits_per_key: u64,
    /// Values of this size and more lie apart from the cells, bytes.
    pub value_block_threshold: u64,
    /// Sorted runs of which there may be this many before they must be merged.
    pub runs_max: u64,
    /// Fewest runs that a merge takes.
    pub fan_in: u64,
    /// A merge takes the next bigger run too if it is at most this many percent of those before.
    pub size_ratio_percent: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            memtable_bytes: 64 << 20,
            frozen_max: 2,
            table_bytes: 64 << 20,
            block_bytes: 4 << 10,
            compression: BlockCompression::Lz4,
            bloom_bits_per_key: 10,
            value_block_threshold: 16 << 10,
            runs_max: 8,
            fan_in: 4,
            size_ratio_percent: 150,
        }
    }
}

/// Names as the manifest echoes them, with the least and the greatest value. Frozen.
const LIMITS: [(&str, u64, u64); 10] = [
    ("memtable_bytes", 4 << 10, 16 << 30),
    ("frozen_max", 1, 64),
    ("table_bytes", 1 << 10, 64 << 30),
    ("block_bytes", 64, 1 << 20),
    ("compression", 0, 1),
    ("bloom_bits_per_key", 1, 64),
    ("value_block_threshold", 1 << 10, 64 << 10),
    ("runs_max", 2, 1_000),
    ("fan_in", 2, 1_000),
    ("size_ratio_percent", 1, 10_000),
];

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
        if self.fan_in > self.runs_max {
            let reason = format!("{} is more than runs_max, {}", self.fan_in, self.runs_max);
            return Err(Error::InvalidOption { name: "fan_in", reason });
        }
        Ok(())
    }

    /// Names and numbers as the manifest keeps them.
    pub fn echo(&self) -> [(&'static str, u64); 10] {
        let values = [
            self.memtable_bytes,
            self.frozen_max,
            self.table_bytes,
            self.block_bytes,
            self.compression as u64,
            self.bloom_bits_per_key,
            self.value_block_threshold,
            self.runs_max,
            self.fan_in,
            self.size_ratio_percent,
        ];
        std::array::from_fn(|place| (LIMITS[place].0, values[place]))
    }

    /// Sets one option from the manifest's echo. `None` when the name or the value is unknown.
    pub(crate) fn set(&mut self, name: &[u8], value: u64) -> Option<()> {
        let place = LIMITS.iter().position(|(known, ..)| known.as_bytes() == name)?;
        let (_, least, most) = LIMITS[place];
        if !(least..=most).contains(&value) {
            return None;
        }
        match place {
            0 => self.memtable_bytes = value,
            1 => self.frozen_max = value,
            2 => self.table_bytes = value,
            3 => self.block_bytes = value,
            4 if value == 0 => self.compression = BlockCompression::None,
            4 => self.compression = BlockCompression::Lz4,
            5 => self.bloom_bits_per_key = value,
            6 => self.value_block_threshold = value,
            7 => self.runs_max = value,
            8 => self.fan_in = value,
            _ => self.size_ratio_percent = value,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_read_back_from_their_echo() {
        let options = StoreOptions { fan_in: 3, table_bytes: 5 << 20, ..StoreOptions::default() };
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
        assert_eq!(options.set(b"runs_max", 1), None);
        options.block_bytes = 0;
        assert_eq!(
            options.validate().unwrap_err().to_string(),
            "option block_bytes: 0 is not from 64 to 1048576"
        );
        let options = StoreOptions { fan_in: 9, ..StoreOptions::default() };
        assert!(options.validate().is_err());
    }
}
