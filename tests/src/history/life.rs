//! One run of the server: open, compare, write and read at the same time, compare, stop.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use client::{AdminService, FamilyChange};
use env::Env;
use futures::FutureExt;
use futures::future::{join, join_all};
use lsm::CountingListener;
use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use types::{ErrorKind, Mutation, RowMutations, RowRange, RowSet, TableSchema};

use super::coverage::Coverage;
use super::plan::{BIG_VALUE_BYTES, EXTRA_FAMILY, End, Life, Operation, Phase, SchemaStep, TABLES};
use super::table::{mutation, new_family, new_table, note_new_table, table_name};
use crate::cluster::{Cluster, ClusterOptions};
use crate::model::{Change, Model, Violation};
use crate::rows::{self, ReadFailure};
use crate::watched::WatchedFileSystem;

/// What a life stands on.
pub struct Ground {
    /// The disk.
    pub files: Arc<dyn FileSystem>,
    /// Is the disk to blame for an error? Else there is none to be.
    pub is_to_blame: Box<dyn Fn() -> bool>,
}

impl Ground {
    /// A disk in memory, which fails only when it stops.
    pub fn solid(disk: &MemoryFileSystem) -> Ground {
        let stopped = disk.clone();
        Ground { files: Arc::new(disk.clone()), is_to_blame: Box::new(move || stopped.is_frozen()) }
    }
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did all it should.
    Whole,
    /// The disk stopped, or failed.
    Stopped,
}

/// Why a life does not go on.
#[derive(Debug)]
pub enum Stop {
    /// An error: all right if the disk has stopped.
    Error(client::Error),
    /// A broken promise.
    Violation(Violation),
}

impl From<client::Error> for Stop {
    fn from(error: client::Error) -> Stop {
        Stop::Error(error)
    }
}

impl From<ReadFailure> for Stop {
    fn from(failure: ReadFailure) -> Stop {
        match failure {
            ReadFailure::Error(error) => Stop::Error(error),
            ReadFailure::Violation(violation) => Stop::Violation(violation),
        }
    }
}

/// What outlives the server: what is known of its content.
pub struct World {
    model: Arc<Mutex<Model>>,
    /// Tables that were ever created.
    created: BTreeSet<String>,
    /// The schema step whose outcome is unknown.
    pending: Option<SchemaStep>,
}

impl World {
    /// A world in which `model` is what was written.
    pub fn new(model: Model) -> World {
        World { model: Arc::new(Mutex::new(model)), created: BTreeSet::new(), pending: None }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.model)
    }

    /// Runs a server on `ground` through one life.
    ///
    /// # Errors
    /// A broken promise.
    pub async fn live(
        &mut self,
        ground: &Ground,
        env: Env,
        life: &Life,
        coverage: &mut Coverage,
    ) -> Result<Ended, Violation> {
        let events = Arc::new(CountingListener::default());
        let files = WatchedFileSystem::new(ground.files.clone());
        let options = ClusterOptions::tiny(events.clone());
        let opened = Cluster::open(Arc::new(files.clone()), env.clone(), options).await;
        let lived = match opened {
            Err(error) => Err(Stop::Error(error)),
            Ok(cluster) => {
                let scene = Scene::new(&cluster, env, Arc::clone(&self.model));
                scene.watch(&files);
                let lived = self.live_with(&scene, &cluster, life, coverage).await;
                scene.count(&cluster, coverage);
                files.unwatch();
                scene.watched().map_err(Stop::Violation).and(lived)
            }
        };
        coverage.add("flushes", events.count("flush_finished"));
        coverage.add("flushes of two locality groups", events.count("flush_of_many_groups"));
        coverage.add("cells dropped by retention", events.count("cells_expired"));
        coverage.add("operands folded by merges", events.count("operands_folded"));
        coverage.add("compactions", events.count("compaction_finished"));
        coverage.add("manifests committed", events.count("manifest_committed"));
        coverage.add("ranges divided", events.count("range_split"));
        coverage.add("rows cut out", events.count("rows_excised"));
        coverage.add("files swept", events.count("file_swept"));
        coverage.add("log segments released", events.count("log_released"));
        if events.count("file_set_aside") > 0 && !(ground.is_to_blame)() {
            return Err("a merge could not read a file that is whole".to_owned());
        }
        match lived {
            Ok(()) => Ok(Ended::Whole),
            Err(Stop::Error(_)) if (ground.is_to_blame)() => Ok(Ended::Stopped),
            Err(Stop::Error(error)) => Err(format!("an error for no reason: {error:?}")),
            Err(Stop::Violation(violation)) => Err(violation),
        }
    }

    async fn live_with(
        &mut self,
        scene: &Scene,
        cluster: &Cluster,
        life: &Life,
        coverage: &mut Coverage,
    ) -> Result<(), Stop> {
        self.resolve(cluster).await?;
        self.compare(scene, cluster).await?;
        for phase in &life.phases {
            self.create_tables(cluster).await?;
            if let Some(step) = &phase.schema {
                self.change_schema(cluster, step).await?;
                coverage.add("schema changes", 1);
            }
            if let Some((table, prefix)) = &phase.dropped {
                self.drop_rows(cluster, table, prefix).await?;
            }
            scene.phase(phase).await?;
        }
        if !life.phases.is_empty() {
            self.compare(scene, cluster).await?;
        }
        if life.end == End::Close {
            cluster.close().await?;
        }
        Ok(())
    }

    /// The tables that are there, and all their rows, are what the model allows.
    async fn compare(&self, scene: &Scene, cluster: &Cluster) -> Result<(), Stop> {
        let listed = cluster.admin.list_tables("projects/p/instances/i", "", 100).await?;
        let listed: Vec<String> =
            listed.tables.iter().map(|schema| schema.name.table.clone()).collect();
        let expected = self.model().tables();
        if listed != expected {
            return Err(Stop::Violation(format!("tables {listed:?} instead of {expected:?}")));
        }
        for table in expected {
            let answer = rows::read(&scene.router, &table_name(&table), RowSet::all()).await?;
            let mut model = self.model();
            model.time_is(scene.env.now_micros());
            model.settle(&table, &answer).map_err(Stop::Violation)?;
        }
        Ok(())
    }

    /// Finds out what became of the schema step that was under way.
    async fn resolve(&mut self, cluster: &Cluster) -> Result<(), Stop> {
        let Some(step) = &self.pending else {
            return Ok(());
        };
        let table = match step {
            SchemaStep::ToggleFamily(table) | SchemaStep::ToggleTable(table) => table.clone(),
        };
        let found = match cluster.admin.get_table(&table_name(&table)).await {
            Ok(schema) => Some(schema),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Stop::Error(error)),
        };
        let mut model = lock(&self.model);
        let is_done = match (step, &found) {
            (SchemaStep::ToggleTable(_), found) => found.is_some() != model.has_table(&table),
            (SchemaStep::ToggleFamily(_), None) => {
                return Err(Stop::Violation(format!("table {table} vanished")));
            }
            (SchemaStep::ToggleFamily(_), Some(schema)) => {
                has_extra(schema) != model.families(&table).contains(&EXTRA_FAMILY.to_owned())
            }
        };
        if is_done {
            note(&mut model, step);
        }
        drop(model);
        self.pending = None;
        Ok(())
    }

    async fn create_tables(&mut self, cluster: &Cluster) -> Result<(), Stop> {
        for table in TABLES {
            if !self.created.contains(table) && !self.model().has_table(table) {
                let step = SchemaStep::ToggleTable(table.to_owned());
                self.change_schema(cluster, &step).await?;
                self.created.insert(table.to_owned());
            }
        }
        Ok(())
    }

    /// Each row is there whole or gone whole if the drop does not come to its end.
    async fn drop_rows(
        &mut self,
        cluster: &Cluster,
        table: &str,
        prefix: &Bytes,
    ) -> Result<(), Stop> {
        if !self.model().has_table(table) {
            return Ok(());
        }
        let rows = self.model().rows_with(table, prefix);
        for row in &rows {
            self.model().begin(table, row, &[Change::DeleteRow]);
        }
        cluster.admin.drop_rows(&table_name(table), &RowRange::prefix(prefix)).await?;
        for row in &rows {
            self.model().acknowledge(table, row);
        }
        Ok(())
    }

    async fn change_schema(&mut self, cluster: &Cluster, step: &SchemaStep) -> Result<(), Stop> {
        self.pending = Some(step.clone());
        match step {
            SchemaStep::ToggleTable(table) if self.model().has_table(table) => {
                cluster.admin.delete_table(&table_name(table)).await?;
            }
            SchemaStep::ToggleTable(table) => {
                cluster.admin.create_table(new_table(table)).await?;
            }
            SchemaStep::ToggleFamily(table) => {
                let has = self.model().families(table).contains(&EXTRA_FAMILY.to_owned());
                let change = if has {
                    FamilyChange::Drop(EXTRA_FAMILY.to_owned())
                } else {
                    FamilyChange::Create(new_family(EXTRA_FAMILY))
                };
                cluster.admin.modify_families(&table_name(table), vec![change]).await?;
            }
        }
        note(&mut self.model(), step);
        self.pending = None;
        let (SchemaStep::ToggleFamily(table) | SchemaStep::ToggleTable(table)) = step;
        cluster.router.forget(&table_name(table));
        Ok(())
    }
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a schema step that was done into the model.
fn note(model: &mut Model, step: &SchemaStep) {
    match step {
        SchemaStep::ToggleTable(table) if model.has_table(table) => model.drop_table(table),
        SchemaStep::ToggleTable(table) => note_new_table(model, table),
        SchemaStep::ToggleFamily(table) => {
            if model.families(table).contains(&EXTRA_FAMILY.to_owned()) {
                model.drop_family(table, EXTRA_FAMILY);
            } else {
                model.add_family(table, EXTRA_FAMILY);
            }
        }
    }
}

fn has_extra(schema: &TableSchema) -> bool {
    schema.family(EXTRA_FAMILY).is_some()
}

/// A running server and what its clients share.
pub struct Scene {
    /// The way to its rows.
    pub router: Arc<client::Router>,
    admin: Arc<dyn AdminService>,
    env: Env,
    model: Arc<Mutex<Model>>,
    /// What the watcher found.
    watched: Arc<Mutex<Option<Violation>>>,
    big_values: Mutex<u64>,
    unknown: Mutex<u64>,
}

/// What became of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// All rows were acknowledged.
    All,
    /// Some were not, and may or may not be written.
    Unknown(client::Error),
    /// Some were refused: nothing of them was written.
    Refused(client::Error),
}

impl Scene {
    /// Clients of `cluster`.
    pub fn new(cluster: &Cluster, env: Env, model: Arc<Mutex<Model>>) -> Scene {
        Scene {
            router: Arc::clone(&cluster.router),
            admin: Arc::clone(&cluster.admin),
            env,
            model,
            watched: Arc::default(),
            big_values: Mutex::new(0),
            unknown: Mutex::new(0),
        }
    }

    /// Reads before every sync of the log what a client on another thread could read then.
    fn watch(&self, files: &WatchedFileSystem) {
        let (router, model) = (Arc::clone(&self.router), Arc::clone(&self.model));
        let (found, env) = (Arc::clone(&self.watched), self.env.clone());
        files.watch(move || {
            let table = TABLES[0];
            if !lock(&model).has_table(table) {
                return;
            }
            lock(&model).time_is(env.now_micros());
            let begun = lock(&model).read_begins(table);
            let read = rows::read(&router, &table_name(table), RowSet::all()).now_or_never();
            let checked = match read {
                Some(Ok(answer)) => lock(&model).read_ends(table, &begun, &answer, |_| true),
                Some(Err(ReadFailure::Violation(violation))) => Err(violation),
                Some(Err(ReadFailure::Error(_))) | None => Ok(()),
            };
            if let Err(violation) = checked {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.get_or_insert(violation);
            }
        });
    }

    fn watched(&self) -> Result<(), Violation> {
        let mut found = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        found.take().map_or(Ok(()), Err)
    }

    fn count(&self, cluster: &Cluster, coverage: &mut Coverage) {
        let many = cluster.server.statistics().commits.groups_of_many;
        coverage.add("commit groups larger than one", many);
        coverage.add("frames replayed", cluster.server.recovery().frames);
        let read = |number: &Mutex<u64>| *number.lock().unwrap_or_else(PoisonError::into_inner);
        coverage.add("big values acknowledged", read(&self.big_values));
        coverage.add("outcomes unknown at the crash", read(&self.unknown));
    }

    /// Writers and a reader at the same time; then, whatever happened, a last look.
    async fn phase(&self, phase: &Phase) -> Result<(), Stop> {
        let writing = Mutex::new(true);
        let writers = async {
            let writers = phase.writers.iter().map(|operations| self.writer(operations));
            let ended = join_all(writers).await;
            *writing.lock().unwrap_or_else(PoisonError::into_inner) = false;
            ended.into_iter().collect::<Result<(), Stop>>()
        };
        let reader = async {
            for round in 0_u64.. {
                if !*writing.lock().unwrap_or_else(PoisonError::into_inner) {
                    break;
                }
                self.look(round).await?;
                self.env.sleep(Duration::from_micros(300 + 977 * (round % 5))).await;
            }
            Ok(())
        };
        let ((written, split), read) = join(join(writers, self.split(phase)), reader).await;
        let written = written.and(split);
        // What can be seen now must last, even if the disk has stopped.
        for round in 0..3 {
            if let Err(Stop::Violation(violation)) = self.look(round).await {
                return Err(Stop::Violation(violation));
            }
        }
        match (written, read) {
            (Err(Stop::Violation(violation)), _) | (_, Err(Stop::Violation(violation))) => {
                Err(Stop::Violation(violation))
            }
            (written, read) => written.and(read),
        }
    }

    /// Divides a range while writers write.
    async fn split(&self, phase: &Phase) -> Result<(), Stop> {
        let Some((table, row)) = &phase.split else {
            return Ok(());
        };
        if lock(&self.model).has_table(table) {
            self.admin.split_table(&table_name(table), vec![row.clone()]).await?;
        }
        Ok(())
    }

    /// One read of a part of a table, compared.
    pub async fn look(&self, round: u64) -> Result<(), Stop> {
        let table = TABLES[usize::from(round % 4 == 1)];
        if !lock(&self.model).has_table(table) {
            return Ok(());
        }
        let letter = [b"a", b"b", b"c", b"d", b"e", b"f"][(round / 3 % 6) as usize];
        let range = match round % 3 {
            0 => RowRange::all(),
            1 => RowRange::prefix(&Bytes::from_static(letter)),
            _ => RowRange::row(&Bytes::from([letter.as_slice(), b"-0"].concat())),
        };
        let begun = lock(&self.model).read_begins(table);
        let asked = RowSet::new(vec![range.clone()]);
        let answer = rows::read(&self.router, &table_name(table), asked).await?;
        let mut model = lock(&self.model);
        model.time_is(self.env.now_micros());
        let checked = model.read_ends(table, &begun, &answer, |row| range.contains(row));
        checked.map_err(Stop::Violation)
    }

    async fn writer(&self, operations: &[Operation]) -> Result<(), Stop> {
        for operation in operations {
            if operation.pause > 0 {
                self.env.sleep(Duration::from_millis(operation.pause)).await;
            }
            match self.write(operation).await? {
                Written::All => {}
                Written::Unknown(error) | Written::Refused(error) => {
                    return Err(Stop::Error(error));
                }
            }
        }
        Ok(())
    }

    /// One call of a writer.
    ///
    /// # Errors
    /// The layout could not be read, or a broken promise.
    pub async fn write(&self, operation: &Operation) -> Result<Written, Stop> {
        let table = operation.table.as_str();
        if !lock(&self.model).has_table(table) {
            return Ok(Written::All);
        }
        let name = table_name(table);
        let layout = self.router.layout(&name).await?;
        let mut layout = layout;
        let families = lock(&self.model).families(table);
        if families.iter().any(|family| layout.schema.family(family).is_none()) {
            layout = self.router.fresh_layout(&name).await?;
        }
        let mut rows = Vec::new();
        let mut keys = Vec::new();
        for (row, changes) in &operation.rows {
            let known = |change: &&Change| {
                change.family().is_none_or(|family| families.iter().any(|known| known == family))
            };
            let changes: Vec<Change> = changes.iter().filter(known).cloned().collect();
            let mutations: Option<Vec<Mutation>> =
                changes.iter().map(|change| mutation(change, &layout.schema)).collect();
            let Some(mutations) = mutations else {
                let text = format!("{table}: a declared family is not in the fresh schema");
                return Err(Stop::Violation(text));
            };
            if mutations.is_empty() {
                continue;
            }
            lock(&self.model).begin(table, row, &changes);
            let is_big = changes.iter().any(|change| match change {
                Change::Set { value, .. } => value.len() >= BIG_VALUE_BYTES,
                _ => false,
            });
            keys.push((row.clone(), is_big));
            rows.push(RowMutations { row: row.clone(), mutations });
        }
        let results = self.router.write_rows(&name, layout, rows, None).await;
        self.note(table, &keys, results)
    }

    fn note(
        &self,
        table: &str,
        keys: &[(Bytes, bool)],
        results: Vec<client::Result<()>>,
    ) -> Result<Written, Stop> {
        let mut written = Written::All;
        let mut model = lock(&self.model);
        for ((row, is_big), result) in keys.iter().zip(results) {
            match result {
                Ok(()) => {
                    model.acknowledge(table, row);
                    *self.big_values.lock().unwrap_or_else(PoisonError::into_inner) +=
                        u64::from(*is_big);
                }
                Err(error) if changes_nothing(error.kind()) => {
                    model.refuse(table, row).map_err(Stop::Violation)?;
                    if written == Written::All {
                        written = Written::Refused(error);
                    }
                }
                Err(error) => {
                    *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    written = Written::Unknown(error);
                }
            }
        }
        Ok(written)
    }
}

/// Does an error of this kind promise that nothing was written?
fn changes_nothing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::FailedPrecondition
            | ErrorKind::ResourceExhausted
            | ErrorKind::Unavailable
            | ErrorKind::WrongRange
    )
}
