use std::fmt;

/// Orders the mutations of one range; assigned when a batch is sequenced, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SeqNo(u64);

impl SeqNo {
    /// Before the first mutation; nothing carries it.
    pub const ZERO: SeqNo = SeqNo(0);
    /// Reads at `MAX` see everything committed.
    pub const MAX: SeqNo = SeqNo(u64::MAX >> 8);

    /// Wraps a number read from a log, manifest or key.
    ///
    /// Returns `None` past [`SeqNo::MAX`]: such a number was never assigned.
    pub fn from_raw(raw: u64) -> Option<SeqNo> {
        (raw <= Self::MAX.0).then_some(SeqNo(raw))
    }

    /// The bare number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number `count` places further on.
    pub fn advance(self, count: u64) -> SeqNo {
        let next = self.0.saturating_add(count);
        assert!(next <= Self::MAX.0, "sequence numbers exhausted");
        SeqNo(next)
    }

    /// The next number.
    pub fn next(self) -> SeqNo {
        self.advance(1)
    }
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The age of a cell as users see it: microseconds since the Unix epoch, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The oldest timestamp, which is also the wire's default.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The newest timestamp.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// Wraps a count of microseconds; `None` when it is negative.
    pub fn from_micros(micros: i64) -> Option<Timestamp> {
        (micros >= 0).then_some(Timestamp(micros))
    }

    /// Microseconds since the Unix epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Rounded down to a multiple of `granule` microseconds.
    pub fn truncated(self, granule: i64) -> Timestamp {
        assert!(granule > 0, "a granule is at least one microsecond");
        Timestamp(self.0 - self.0 % granule)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name($raw);

        impl $name {
            /// Wraps a stored or assigned number.
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The bare number.
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number_id! {
    /// A table, for ever: a table dropped and created again under its name gets a new id.
    TableId, u64, "t"
}
number_id! {
    /// A range (a contiguous run of a table's rows); children of a split get fresh ids.
    RangeId, u64, "r"
}
number_id! {
    /// A column family of one table: its stable ordinal, which is creation order. Never reused;
    /// zero means the row itself.
    FamilyId, u32, "f"
}
number_id! {
    /// Grows with every change of a range's owner.
    Epoch, u64, "e"
}
number_id! {
    /// Grows with every change of a table's schema.
    Generation, u64, "g"
}

impl FamilyId {
    /// Stands for the row itself in keys: row tombstones sort before every family.
    pub const ROW: FamilyId = FamilyId(0);
}

/// One run of a server, from opening its log to closing it: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(u128);

impl SessionId {
    /// Wraps random bits.
    pub const fn new(raw: u128) -> Self {
        Self(raw)
    }

    /// The bare bits.
    pub const fn get(self) -> u128 {
        self.0
    }

    /// Reads the 32 hexadecimal digits that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<SessionId> {
        let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u128::from_str_radix(text, 16).ok().map(SessionId)).flatten()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// An SSTable, unique in its table for ever: the writing session's random bits and a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The upper 64 bits of the session that wrote the file.
    pub session: u64,
    /// Counts the files of that session.
    pub counter: u64,
}

impl FileId {
    /// Reads the form that [`fmt::Display`] writes: 16 hexadecimal digits, a dash, 8 or more.
    pub fn parse(text: &str) -> Option<FileId> {
        let (session, counter) = text.split_once('-')?;
        let hex = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(part, 16).ok()).flatten()
        };
        Some(FileId { session: hex(session)?, counter: hex(counter)? })
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.session, self.counter)
    }
}
