//! What a history does, drawn from its seed before it runs: so a crash changes when it ends, never
//! what it wanted to do.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::model::Change;

/// The families that a table is created with.
pub const FAMILIES: [&str; 5] = ["f", "g", VERSIONS_FAMILY, AGED_FAMILY, SUM_FAMILY];
/// The family of which only the newest cells of a column must stay.
pub const VERSIONS_FAMILY: &str = "v";
/// How many.
pub const VERSIONS_MAX: usize = 2;
/// The family of which only young cells must stay.
pub const AGED_FAMILY: &str = "o";
/// How young: less than a life takes.
pub const AGE_MAX_MICROS: i64 = 50_000;
/// The family whose cells are sums.
pub const SUM_FAMILY: &str = "s";
/// The time at which the clock of every life begins: 2020-01-01.
const LIFE_START_MICROS: i64 = 1_577_836_800_000_000;
/// The family that schema changes declare and drop.
pub const EXTRA_FAMILY: &str = "x";
/// Where tables are divided.
pub const SPLITS: [&str; 2] = ["c", "e"];
/// Values from this size on are stored outside of blocks: the smallest that the store allows.
pub const BIG_VALUE_BYTES: usize = 1 << 10;

/// Sizes of a history.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Runs of the server, each ended by a clean stop or a crash between operations.
    pub lives: usize,
    /// Parts of a life, with a schema change or nothing between.
    pub phases: usize,
    /// Operations of each writer in a phase.
    pub operations: usize,
}

/// What one run of the server does.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its parts.
    pub phases: Vec<Phase>,
    /// How it ends.
    pub end: End,
}

/// How a life ends, when nothing stops it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A clean stop.
    Close,
    /// The process dies with everything acknowledged.
    Kill,
    /// The power is cut with everything acknowledged.
    PowerCut,
}

/// A part of a life: perhaps a schema change, then writers at the same time, each with its own
/// rows.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Comes first.
    pub schema: Option<SchemaStep>,
    /// Rows that are dropped then: all of a table that begin with this.
    pub dropped: Option<(String, Bytes)>,
    /// Where a table is divided while the writers write.
    pub split: Option<(String, Bytes)>,
    /// What each writer does.
    pub writers: Vec<Vec<Operation>>,
}

/// A change to the schema of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaStep {
    /// Declares [`EXTRA_FAMILY`], or drops it if it is there.
    ToggleFamily(String),
    /// Drops the table with its rows, or creates it if it is not there.
    ToggleTable(String),
}

/// One call of a writer: rows of one table, each with its changes.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The table.
    pub table: String,
    /// The rows, each once.
    pub rows: Vec<(Bytes, Vec<Change>)>,
    /// Milliseconds to wait before it.
    pub pause: u64,
}

/// The tables of a history.
pub const TABLES: [&str; 2] = ["alpha", "beta"];

/// Draws a history.
pub fn plan(seed: u64, size: Size) -> Vec<Life> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut of_ranges = StdRng::seed_from_u64(seed.rotate_left(23));
    let writers = random.random_range(2..=3);
    let lives = (0..size.lives).map(|number| {
        let phases = (0..size.phases)
            .map(|phase| {
                let mut phase = phase_of(&mut random, writers, size, number + phase > 0);
                plan_ranges(&mut of_ranges, &mut phase);
                phase
            })
            .collect();
        let end = [End::Close, End::Kill, End::PowerCut][random.random_range(0..3)];
        Life { phases, end }
    });
    lives.collect()
}

fn phase_of(random: &mut StdRng, writers: usize, size: Size, may_change: bool) -> Phase {
    let schema = (may_change && random.random_bool(0.3)).then(|| {
        if random.random_bool(0.7) {
            SchemaStep::ToggleFamily(TABLES[0].to_owned())
        } else {
            SchemaStep::ToggleTable(TABLES[1].to_owned())
        }
    });
    let writers = (0..writers)
        .map(|writer| (0..size.operations).map(|_| operation(random, writer)).collect())
        .collect();
    Phase { schema, dropped: None, split: None, writers }
}

fn plan_ranges(random: &mut StdRng, phase: &mut Phase) {
    let table = |random: &mut StdRng| TABLES[usize::from(random.random_bool(0.3))].to_owned();
    let letter = |random: &mut StdRng| [b'a' + random.random_range(0..6)];
    if random.random_bool(0.25) {
        phase.dropped = Some((table(random), Bytes::copy_from_slice(&letter(random))));
    }
    if random.random_bool(0.4) {
        let mut row = letter(random).to_vec();
        row.extend_from_slice([&b""[..], b"-1", b"-"][random.random_range(0..3)]);
        phase.split = Some((table(random), Bytes::from(row)));
    }
}

fn operation(random: &mut StdRng, writer: usize) -> Operation {
    let table = TABLES[usize::from(random.random_bool(0.3))].to_owned();
    let mut rows = Vec::new();
    for letter in ["a", "b", "c", "d", "e", "f"] {
        if random.random_bool(if rows.is_empty() { 0.4 } else { 0.25 }) {
            let key = Bytes::from(format!("{letter}-{writer}"));
            let changes = (0..random.random_range(1..4)).map(|_| any_change(random)).collect();
            rows.push((key, changes));
        }
    }
    if rows.is_empty() {
        rows.push((Bytes::from(format!("a-{writer}")), vec![any_change(random)]));
    }
    let pause = [0, 0, 0, 1, 120][random.random_range(0..5)];
    Operation { table, rows, pause }
}

fn any_change(random: &mut StdRng) -> Change {
    match random.random_range(0..10) {
        0..2 => ruled_change(random, VERSIONS_FAMILY),
        2..4 => ruled_change(random, AGED_FAMILY),
        4 => ruled_change(random, SUM_FAMILY),
        _ => change(random),
    }
}

/// A change to a column of a family with a rule, or to a sum.
fn ruled_change(random: &mut StdRng, family: &str) -> Change {
    let timestamp = match family {
        // Too old at once, at some time of a life, and never.
        AGED_FAMILY => {
            let after = [-1_000_000, 0, 20_000, 200_000, 1_000_000_000_000];
            LIFE_START_MICROS + after[random.random_range(0..after.len())]
        }
        _ => random.random_range(1..5) * 1000,
    };
    let family = family.to_owned();
    let qualifier = Bytes::from_static([&b""[..], b"p"][random.random_range(0..2)]);
    match random.random_range(0..20) {
        0 => Change::DeleteFamily { family },
        1..=3 => {
            let end = [0, timestamp + 1000][random.random_range(0..2)];
            Change::DeleteCells { family, qualifier, start: timestamp, end }
        }
        _ if family == SUM_FAMILY => {
            let operand = [1, -7, i64::MAX, random.random()][random.random_range(0..4)];
            Change::Add { family, qualifier, timestamp, operand }
        }
        _ => Change::Set { family, qualifier, timestamp, value: value(random) },
    }
}

/// A change to a random column; the extra family counts only where it is declared.
pub fn change(random: &mut StdRng) -> Change {
    let family = ["f", "f", "g", EXTRA_FAMILY][random.random_range(0..4)].to_owned();
    let qualifier = Bytes::from_static([&b""[..], b"p", b"q"][random.random_range(0..3)]);
    let timestamp = random.random_range(1..4) * 1000;
    match random.random_range(0..20) {
        0 => Change::DeleteRow,
        1 | 2 => Change::DeleteFamily { family },
        3..=5 => Change::DeleteCells {
            family,
            qualifier,
            start: timestamp,
            end: [0, timestamp + 1000][random.random_range(0..2)],
        },
        _ => Change::Set { family, qualifier, timestamp, value: value(random) },
    }
}

fn value(random: &mut StdRng) -> Bytes {
    let len = match random.random_range(0..20) {
        0 | 1 => random.random_range(BIG_VALUE_BYTES..3 * BIG_VALUE_BYTES),
        2 => 0,
        3..=8 => random.random_range(200..900),
        _ => random.random_range(1..30),
    };
    let mut value = vec![0; len];
    random.fill_bytes(&mut value);
    Bytes::from(value)
}
