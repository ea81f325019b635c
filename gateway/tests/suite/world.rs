//! A gateway over the fake, clients of it without a socket, and what tests say often.

use std::sync::Arc;

use bytes::Bytes;
use client::Router;
use env::Env;
use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::admin::v2::bigtable_table_admin_client::BigtableTableAdminClient;
use proto::google::bigtable::admin::v2::bigtable_table_admin_server::BigtableTableAdminServer;
use proto::google::bigtable::v2 as data;
use proto::google::bigtable::v2::bigtable_client::BigtableClient;
use proto::google::bigtable::v2::bigtable_server::BigtableServer;
use proto::google::bigtable::v2::mutation::{
    DeleteFromColumn, DeleteFromFamily, DeleteFromRow, Mutation as Kind, SetCell,
};
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use proto::limits;
use proto::tepui::admin::v1::ranges_client::RangesClient;
use proto::tepui::admin::v1::ranges_server::RangesServer;
use tepui_gateway::{AdminGateway, DataGateway, RangesGateway};
use tonic::{Code, Status};
use types::TableName;

use super::fake::Fake;

pub(crate) const INSTANCE: &str = "projects/p/instances/i";
pub(crate) const TABLE: &str = "projects/p/instances/i/tables/t";

pub(crate) struct World {
    pub(crate) fake: Fake,
    pub(crate) router: Arc<Router>,
    pub(crate) data: BigtableClient<BigtableServer<DataGateway>>,
    pub(crate) admin: BigtableTableAdminClient<BigtableTableAdminServer<AdminGateway>>,
    pub(crate) ranges: RangesClient<RangesServer<RangesGateway>>,
    /// How often a read was told to forget half a row.
    pub(crate) resets: usize,
}

/// One cell as a client sees it: row, family, qualifier, timestamp, value.
pub(crate) type Cell = (Bytes, String, Bytes, i64, Bytes);

impl World {
    /// No table.
    pub(crate) fn empty() -> World {
        let fake = Fake::default();
        let router = Arc::new(Router::new(Arc::new(fake.clone()), Env::simulated(1)));
        let admin = AdminGateway::new(Arc::new(fake.clone()), router.clone());
        let ranges = RangesGateway::new(Arc::new(fake.clone()), router.clone());
        World {
            data: limits::data_client(limits::data_server(DataGateway::new(router.clone()))),
            admin: limits::table_admin_client(limits::table_admin_server(admin)),
            ranges: limits::ranges_client(limits::ranges_server(ranges)),
            router,
            fake,
            resets: 0,
        }
    }

    /// The table `t` with families `f` and `g`, divided at `splits`.
    pub(crate) async fn with_table(splits: &[&'static str]) -> World {
        let mut world = World::empty();
        let request = create_request("t", &["f", "g"], splits);
        world.admin.create_table(request).await.unwrap();
        world
    }

    pub(crate) async fn mutate(
        &mut self,
        row: impl Into<Bytes>,
        mutations: Vec<data::Mutation>,
    ) -> Result<(), Status> {
        let request = data::MutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: row.into(),
            mutations,
            ..Default::default()
        };
        self.data.mutate_row(request).await.map(|_| ())
    }

    /// One cell `f:q` at 1000 in each of the rows.
    pub(crate) async fn fill(&mut self, rows: &[&'static str]) {
        for row in rows {
            self.mutate(*row, vec![set("f", "q", 1000, *row)]).await.unwrap();
        }
    }

    /// The status code of every entry, by index; checks that each index is there once.
    pub(crate) async fn mutate_rows(
        &mut self,
        entries: Vec<(Bytes, Vec<data::Mutation>)>,
    ) -> Result<Vec<Code>, Status> {
        let count = entries.len();
        let entries = entries.into_iter().map(|(row_key, mutations)| {
            data::mutate_rows_request::Entry { row_key, mutations, idempotency: None }
        });
        let request = data::MutateRowsRequest {
            table_name: TABLE.to_owned(),
            entries: entries.collect(),
            ..Default::default()
        };
        let mut stream = self.data.mutate_rows(request).await?.into_inner();
        let mut codes: Vec<Option<Code>> = vec![None; count];
        while let Some(message) = stream.message().await? {
            for entry in message.entries {
                let code = entry.status.map_or(0, |status| status.code);
                let place = &mut codes[usize::try_from(entry.index).unwrap()];
                assert_eq!(*place, None, "index {} twice", entry.index);
                *place = Some(Code::from(code));
            }
        }
        Ok(codes.into_iter().map(Option::unwrap).collect())
    }

    pub(crate) async fn read(
        &mut self,
        request: data::ReadRowsRequest,
    ) -> Result<Vec<Cell>, Status> {
        let mut merger = Merger { descends: request.reversed, ..Merger::default() };
        let mut stream = self.data.read_rows(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            for chunk in message.chunks {
                merger.chunk(chunk);
            }
        }
        assert!(merger.row.is_none(), "the stream ended inside a row");
        self.resets += merger.resets;
        Ok(merger.cells)
    }

    pub(crate) async fn read_all(&mut self) -> Vec<Cell> {
        self.read(read_request()).await.unwrap()
    }

    /// The keys of the rows that a read answers with.
    pub(crate) async fn keys(
        &mut self,
        request: data::ReadRowsRequest,
    ) -> Result<Vec<String>, Status> {
        let cells = self.read(request).await?;
        let mut keys: Vec<String> =
            cells.into_iter().map(|cell| String::from_utf8(cell.0.to_vec()).unwrap()).collect();
        keys.dedup();
        Ok(keys)
    }
}

/// Puts chunks together as a client does, and panics when they break the contract.
#[derive(Default)]
struct Merger {
    descends: bool,
    cells: Vec<Cell>,
    resets: usize,
    last_row: Bytes,
    row: Option<Bytes>,
    pending: Vec<Cell>,
    family: Option<String>,
    qualifier: Option<Bytes>,
}

impl Merger {
    fn chunk(&mut self, chunk: CellChunk) {
        if chunk.row_status == Some(RowStatus::ResetRow(true)) {
            assert!(self.row.is_some(), "a reset outside of a row");
            *self = Merger {
                cells: std::mem::take(&mut self.cells),
                resets: self.resets + 1,
                last_row: self.last_row.clone(),
                descends: self.descends,
                ..Merger::default()
            };
            return;
        }
        match &self.row {
            None => {
                let in_order = match self.descends {
                    false => chunk.row_key > self.last_row,
                    true => self.last_row.is_empty() || chunk.row_key < self.last_row,
                };
                assert!(in_order, "rows out of order");
                self.row = Some(chunk.row_key.clone());
            }
            Some(row) => assert!(chunk.row_key.is_empty() || chunk.row_key == *row),
        }
        if chunk.family_name.is_some() {
            assert!(chunk.qualifier.is_some(), "a family without a qualifier");
            self.family = chunk.family_name;
        }
        self.qualifier = chunk.qualifier.or(self.qualifier.take());
        assert_eq!(chunk.value_size, 0, "the fake splits no values");
        self.pending.push((
            self.row.clone().unwrap(),
            self.family.clone().unwrap(),
            self.qualifier.clone().unwrap(),
            chunk.timestamp_micros,
            chunk.value,
        ));
        if chunk.row_status == Some(RowStatus::CommitRow(true)) {
            self.cells.append(&mut self.pending);
            self.last_row = self.row.take().unwrap();
            (self.family, self.qualifier) = (None, None);
        }
    }
}

pub(crate) fn table_name() -> TableName {
    TableName::parse(TABLE).unwrap()
}

pub(crate) fn create_request(
    id: &str,
    families: &[&str],
    splits: &[&'static str],
) -> admin::CreateTableRequest {
    let families = families.iter().map(|name| ((*name).to_owned(), admin::ColumnFamily::default()));
    let splits = splits
        .iter()
        .map(|key| admin::create_table_request::Split { key: Bytes::from_static(key.as_bytes()) });
    admin::CreateTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: id.to_owned(),
        table: Some(admin::Table { column_families: families.collect(), ..Default::default() }),
        initial_splits: splits.collect(),
    }
}

pub(crate) fn read_request() -> data::ReadRowsRequest {
    data::ReadRowsRequest { table_name: TABLE.to_owned(), ..Default::default() }
}

pub(crate) fn mutation(kind: Kind) -> data::Mutation {
    data::Mutation { mutation: Some(kind), timestamp_origin: 0 }
}

pub(crate) fn set(
    family: &str,
    qualifier: &'static str,
    at: i64,
    value: impl Into<Bytes>,
) -> data::Mutation {
    mutation(Kind::SetCell(SetCell {
        family_name: family.to_owned(),
        column_qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp_micros: at,
        value: value.into(),
    }))
}

pub(crate) fn delete_column(
    family: &str,
    qualifier: &'static str,
    range: Option<(i64, i64)>,
) -> data::Mutation {
    mutation(Kind::DeleteFromColumn(DeleteFromColumn {
        family_name: family.to_owned(),
        column_qualifier: Bytes::from_static(qualifier.as_bytes()),
        time_range: range.map(|(start, end)| data::TimestampRange {
            start_timestamp_micros: start,
            end_timestamp_micros: end,
        }),
    }))
}

pub(crate) fn delete_family(family: &str) -> data::Mutation {
    mutation(Kind::DeleteFromFamily(DeleteFromFamily { family_name: family.to_owned() }))
}

pub(crate) fn delete_row() -> data::Mutation {
    mutation(Kind::DeleteFromRow(DeleteFromRow {}))
}
