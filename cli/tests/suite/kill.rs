//! Kills the server with signal 9, again and again, under a load that is verified.
//!
//! 1. Start the server; read every row and compare it with what the clients' own synced records
//!    say it must hold. A row change that was interrupted may have happened or not, but whole;
//!    which of the two is recorded, and holds from then on.
//! 2. Several clients send sets, deletes, batches and big values, and read their rows in between;
//!    one more makes a table and drops the last one.
//! 3. The server tells what it begins on its standard error; kill it a moment after it began what
//!    this round aims at. What was under way when it died is counted from what it had told.
//! 4. Every other time, start it and kill it while it recovers, before step 1.
//!
//! `TEPUI_KILLS` sets how many kills there are at least.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, Error, NewFamily, Row, Table};
use env::Env;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{Handle, Runtime};
use types::{ErrorKind, RowRange};

use crate::load::{self, Cells, FAMILIES, Operation, ROWS};
use crate::records::{History, Records};
use crate::tepui::{Process, Server, UnderWay, announce, under_way};

const CLIENTS: u32 = 4;
const KILLS: u32 = 52;
/// How often a flush, a manifest commit and a recovery must have been under way each.
const HITS_MIN: u32 = 5;
/// Everything small, so that everything happens often.
const FLAGS: [&str; 8] = [
    "--memtable-size=32K",
    "--log-segment-size=256K",
    "--log-size=1M",
    "--memory-budget=64M",
    "--host",
    "127.0.0.1",
    "--port",
    "0",
];
/// How long the load runs at most when what is aimed at does not happen.
const LOAD_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Flush,
    Manifest,
    Compaction,
    Anything,
}

/// What the kills met.
#[derive(Debug, Default)]
struct Hits {
    kills: u32,
    flush: u32,
    compaction: u32,
    manifest: u32,
    recovery: u32,
    /// Row changes that were interrupted, and how many of these had taken effect.
    interrupted: u32,
    applied: u32,
    /// Requests that the server refused for the moment, with nothing changed.
    refused: u32,
    operations: u64,
    /// Time spent on starts with their verification, and under load.
    starting: Duration,
    loading: Duration,
}

impl Hits {
    fn count(&mut self, under_way: UnderWay) {
        self.kills += 1;
        self.flush += u32::from(under_way.flush);
        self.compaction += u32::from(under_way.compaction);
        self.manifest += u32::from(under_way.manifest);
        self.recovery += u32::from(under_way.recovery);
    }

    fn enough(&self) -> bool {
        [self.flush, self.manifest, self.recovery].iter().all(|hits| *hits >= HITS_MIN)
    }
}

/// The tables that there are, as far as their creations and drops were acknowledged.
#[derive(Debug, Default)]
struct Tables {
    present: BTreeSet<String>,
    /// Those whose creation or drop was interrupted.
    unknown: BTreeSet<String>,
}

impl Tables {
    /// Compares, and takes what is listed for the truth about those that were unknown.
    fn verify(&mut self, listed: Vec<String>) {
        let listed: BTreeSet<String> = listed.into_iter().collect();
        let wrong: Vec<_> = listed
            .symmetric_difference(&self.present)
            .filter(|table| !self.unknown.contains(*table))
            .collect();
        assert!(wrong.is_empty(), "tables are wrong: {wrong:?}, listed {listed:?}, known {self:?}");
        *self = Tables { present: listed, unknown: BTreeSet::new() };
    }

    /// Makes the table `name` and drops the one before.
    async fn change(&mut self, name: &str, client: &Client) -> Result<(), Error> {
        let families = [NewFamily { name: "f".into(), retention: None, aggregate: None }];
        let before = self.present.iter().find(|table| *table != "t").cloned();
        self.unknown.insert(name.to_owned());
        client.create_table(name, &families, &[]).await?;
        self.unknown.remove(name);
        self.present.insert(name.to_owned());
        let Some(before) = before else { return Ok(()) };
        self.present.remove(&before);
        self.unknown.insert(before.clone());
        client.drop_table(&before).await?;
        self.unknown.remove(&before);
        Ok(())
    }
}

struct Harness {
    folder: tempfile::TempDir,
    seed: u64,
    rng: StdRng,
    runtime: Runtime,
    tables: Tables,
    hits: Hits,
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_half_done_is_seen_after_kill_9() {
    let kills = std::env::var("TEPUI_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = Env::system().random_u64();
    println!("seed {seed}, at least {kills} kills");
    let mut harness = Harness {
        folder: tempfile::tempdir().unwrap(),
        seed,
        rng: StdRng::seed_from_u64(seed),
        runtime: Runtime::new().unwrap(),
        tables: Tables::default(),
        hits: Hits::default(),
    };
    let aims = [Aim::Flush, Aim::Manifest, Aim::Anything, Aim::Manifest, Aim::Compaction];
    for round in 0.. {
        if harness.hits.kills >= kills && harness.hits.enough() || harness.hits.kills >= 3 * kills {
            break;
        }
        harness.round(aims[round % aims.len()], round == 0);
        for _ in 0..round % 3 {
            harness.kill_in_recovery();
        }
    }
    harness.end();
    let hits = &harness.hits;
    announce(&format!("kill -9, verified after each: {hits:?}"));
    assert!(hits.enough(), "seed {seed}: too few hits of {HITS_MIN} each: {hits:?}");
    assert!(hits.refused <= hits.kills / 5, "seed {seed}: too many refusals: {hits:?}");
}

impl Harness {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn records(&self, client: u32) -> PathBuf {
        self.folder.path().join(format!("client{client}.records"))
    }

    /// Starts the server, verifies what is stored, and makes the table at the first time.
    fn start(&mut self, first: bool) -> (Server, Client) {
        let server = Server::start(&self.data(), &FLAGS);
        // It is the one that was started here, and no other.
        let lock = std::fs::read_to_string(self.data().join("LOCK")).unwrap();
        assert_eq!(lock.trim(), server.process.id().to_string());
        let instance = "projects/p/instances/i";
        let connect = Client::connect(&server.endpoint, instance);
        let client = self.runtime.block_on(connect).unwrap();
        if first {
            let families = FAMILIES.map(|name| NewFamily {
                name: name.into(),
                retention: None,
                aggregate: None,
            });
            // A range of its own for each client, and one that stays empty.
            let splits: Vec<_> = (0..CLIENTS).map(|client| load::prefix(client).into()).collect();
            let create = client.create_table("t", &families, &splits);
            self.runtime.block_on(create).unwrap();
            self.tables.present.insert("t".to_owned());
        }
        let listed = self.runtime.block_on(client.list_tables()).unwrap();
        self.tables.verify(listed);
        for number in 0..CLIENTS {
            self.verify(&client.table("t"), number);
        }
        (server, client)
    }

    /// Compares a client's rows with its records, and records what became of its last operation.
    fn verify(&mut self, table: &Table, number: u32) {
        let path = self.records(number);
        let history = History::read(&path, self.seed, number);
        let prefix = load::prefix(number);
        let rows = self.runtime.block_on(read(table, RowRange::prefix(&prefix.into())));
        let rows = rows.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let (open, unknown) = history.open.clone().unwrap_or_default();
        let operation = Operation::new(self.seed, number, open);
        let mut found = Vec::new();
        for row in 0..ROWS {
            let key = load::key(number, row);
            let stored = rows.iter().find(|stored| stored.key == key);
            let before = history.rows.get(&row).cloned().unwrap_or_default();
            let Err(wrong) = load::compare(stored, &before) else { continue };
            let place = unknown.iter().find(|place| operation.rows[**place].row == row);
            let after = place.map(|place| {
                let mut after = before;
                operation.rows[*place].apply(&mut after);
                found.push(*place);
                load::compare(stored, &after)
            });
            match after {
                Some(Ok(())) => {}
                Some(Err(other)) => panic!(
                    "seed {}: {key} after operation {open} is half done: {wrong}; {other}",
                    self.seed
                ),
                None => panic!("seed {}: {key} is wrong: {wrong}", self.seed),
            }
        }
        if history.open.is_some() {
            self.hits.interrupted += u32::try_from(unknown.len()).unwrap();
            self.hits.applied += u32::try_from(found.len()).unwrap();
            Records::open(&path).found(open, &found);
        }
    }

    /// Starts, verifies, loads and kills.
    fn round(&mut self, aim: Aim, first: bool) {
        let began = Env::system().monotonic();
        let (server, client) = self.start(first);
        let loaded = Env::system().monotonic();
        self.hits.starting += loaded - began;
        let table = client.table("t");
        let killing = AtomicBool::new(false);
        let times = self.rng.random_range(1..=2);
        let then = Duration::from_micros(self.rng.random_range(0..3000));
        let load_min = Duration::from_millis(self.rng.random_range(100..600));
        let handle = self.runtime.handle().clone();
        let name = format!("made{}", self.hits.kills);
        let mut tables = std::mem::take(&mut self.tables);
        let (lines, ends) = std::thread::scope(|scope| {
            let tables = scope.spawn(|| {
                let change = unless_killed(tables.change(&name, &client), &killing);
                let error = handle.block_on(change).and_then(Result::err);
                (0, error.and_then(|error| refusal(error, &killing)))
            });
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (table, handle, path) = (&table, &handle, self.records(number));
                    let (seed, killing) = (self.seed, &killing);
                    scope.spawn(move || send(seed, number, &path, table, handle, killing))
                })
                .collect();
            let sleep = |duration| handle.block_on(Env::system().sleep(duration));
            sleep(load_min);
            match aim {
                Aim::Flush => server.process.wait_for("flush_started", times, LOAD_MAX),
                Aim::Manifest => server.process.wait_for("manifest_started", times, LOAD_MAX),
                Aim::Compaction => server.process.wait_for("compaction_started", 1, LOAD_MAX),
                Aim::Anything => true,
            };
            sleep(then.mul_f64(if aim == Aim::Manifest { 0.2 } else { 1.0 }));
            killing.store(true, Ordering::SeqCst);
            let lines = server.kill();
            let ends = clients.into_iter().chain([tables]).map(|thread| thread.join().unwrap());
            (lines, ends.collect::<Vec<_>>())
        });
        self.tables = tables;
        for (sent, error) in ends {
            self.hits.operations += sent;
            if let Some(error) = error {
                self.hits.refused += 1;
                println!("refused: {error}");
            }
        }
        self.hits.count(under_way(&lines));
        self.hits.loading += Env::system().monotonic() - loaded;
    }

    /// Starts the server over what a kill left, and kills it while it recovers.
    fn kill_in_recovery(&mut self) {
        let process = Process::start(&self.data(), &FLAGS);
        assert!(process.wait_for("recovery_started", 1, Duration::from_secs(30)));
        let then = Duration::from_micros(self.rng.random_range(0..20_000));
        self.runtime.block_on(Env::system().sleep(then));
        let lines = process.killed();
        self.hits.count(under_way(&lines));
    }

    /// Ends cleanly: what comes after finds nothing to recover, and everything in its place.
    fn end(&mut self) {
        let (server, _) = self.start(false);
        server.terminate();
        let (server, _) = self.start(false);
        let lines = server.terminate();
        let recovery = lines.iter().find(|line| line.contains("recovery_done")).unwrap();
        assert!(recovery.contains("cells: 0"), "{recovery}");
    }
}

async fn read(table: &Table, rows: RowRange) -> Result<Vec<Row>, Error> {
    let mut scan = table.scan(rows, None);
    let mut read = Vec::new();
    while let Some(row) = scan.next().await? {
        read.push(row);
    }
    Ok(read)
}

/// Sends a client's operations, one after the other, until the server is killed; returns how many
/// were acknowledged, and with what the server refused one before, if it did.
fn send(
    seed: u64,
    client: u32,
    path: &Path,
    table: &Table,
    handle: &Handle,
    killing: &AtomicBool,
) -> (u64, Option<Error>) {
    let History { next, mut rows, open } = History::read(path, seed, client);
    assert!(open.is_none(), "it was looked at before");
    let mut records = Records::open(path);
    for number in next.. {
        let operation = Operation::new(seed, client, number);
        records.intent(number);
        let mutations: Vec<_> = operation.rows.iter().map(|row| row.mutation(client)).collect();
        let call = async {
            match <[_; 1]>::try_from(mutations) {
                Ok([row]) => vec![table.mutate_row(row).await],
                Err(rows) => table.mutate_rows(rows).await,
            }
        };
        let Some(outcomes) = handle.block_on(unless_killed(call, killing)) else {
            return (number - next, None);
        };
        let done = |place: &usize| outcomes[*place].is_ok();
        let places: Vec<usize> = (0..outcomes.len()).filter(done).collect();
        // Never an empty line: what it would say is that nothing is known.
        if !places.is_empty() {
            records.done(number, &places);
        }
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            return (number - next, refusal(error, killing));
        }
        for change in &operation.rows {
            change.apply(rows.entry(change.row).or_default());
        }
        if number % 5 == 0 {
            let row = u32::try_from(number / 5 % u64::from(ROWS)).unwrap();
            let expected = rows.get(&row).cloned().unwrap_or_default();
            let look = unless_killed(look(client, row, &expected, table), killing);
            match handle.block_on(look) {
                Some(Ok(())) => {}
                Some(Err(error)) => return (number - next, refusal(error, killing)),
                None => return (number - next, None),
            }
        }
    }
    unreachable!("numbers do not end")
}

/// Reads a row under the load and compares it.
async fn look(client: u32, row: u32, expected: &Cells, table: &Table) -> Result<(), Error> {
    let key = load::key(client, row);
    let stored = table.get(key.clone()).await?;
    load::compare(stored.as_ref(), expected)
        .unwrap_or_else(|wrong| panic!("{key} is wrong under load: {wrong}"));
    Ok(())
}

/// Waits for an answer, and for a moment after the kill: what a client does that finds the server
/// gone is try again, and there is nobody to try.
async fn unless_killed<T>(call: impl Future<Output = T>, killing: &AtomicBool) -> Option<T> {
    let env = Env::system();
    let killed = async {
        while !killing.load(Ordering::SeqCst) {
            env.sleep(Duration::from_millis(20)).await;
        }
        env.sleep(Duration::from_millis(50)).await;
    };
    tokio::select! { biased;
        answer = call => Some(answer),
        () = killed => None,
    }
}

/// An error is the kill's doing, or the server asks to wait; any other is a failure.
fn refusal(error: Error, killing: &AtomicBool) -> Option<Error> {
    if killing.load(Ordering::SeqCst) {
        return None;
    }
    let passing = [ErrorKind::Unavailable, ErrorKind::ResourceExhausted];
    assert!(passing.contains(&error.kind()), "{:?}: {error}", error.kind());
    Some(error)
}
