//! The table admin API over `AdminService`.

use std::sync::Arc;

use bytes::Bytes;
use client::{AdminService, Error, NewTable, Result, Router};
use proto::google::bigtable::admin::v2;
use proto::google::bigtable::admin::v2::bigtable_table_admin_server::BigtableTableAdmin;
use proto::google::bigtable::admin::v2::drop_row_range_request::Target;
use proto::google::bigtable::admin::v2::table::View;
use tonic::{Request, Response, Status};
use types::limits::INITIAL_SPLITS_MAX;
use types::{RowRange, TableName, validate_table_id};

use crate::convert;
use crate::status::status;
use crate::validate::{names, refuse, row_key};

/// Tables of one page, when the client asks for more or does not say.
const PAGE_TABLES_MAX: usize = 1000;
/// Bytes of the mark at which a page begins.
const PAGE_TOKEN_BYTES_MAX: usize = 2048;

/// Serves the table admin API.
#[derive(Clone)]
pub struct AdminGateway {
    admin: Arc<dyn AdminService>,
    router: Arc<Router>,
}

impl std::fmt::Debug for AdminGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminGateway")
    }
}

impl AdminGateway {
    /// Changes schemas through `admin`, and tells `router` which.
    pub fn new(admin: Arc<dyn AdminService>, router: Arc<Router>) -> AdminGateway {
        AdminGateway { admin, router }
    }

    async fn create(&self, request: v2::CreateTableRequest) -> Result<v2::Table> {
        let table = new_table(request)?;
        let name = table.name.clone();
        let created = self.admin.create_table(table).await;
        self.router.forget(&name);
        Ok(convert::table(&*created?, View::Full))
    }

    async fn list(&self, request: v2::ListTablesRequest) -> Result<v2::ListTablesResponse> {
        names::instance(&request.parent)?;
        let view = view(request.view, View::NameOnly)?;
        let size = page_size(request.page_size)?;
        if request.page_token.len() > PAGE_TOKEN_BYTES_MAX {
            return Err(Error::invalid("invalid page token"));
        }
        let page = self.admin.list_tables(&request.parent, &request.page_token, size).await?;
        let tables = page.tables.iter();
        Ok(v2::ListTablesResponse {
            tables: tables.map(|schema| convert::table(schema, view)).collect(),
            next_page_token: page.next.unwrap_or_default(),
        })
    }

    async fn get(&self, request: v2::GetTableRequest) -> Result<v2::Table> {
        let name = names::table(&request.name)?;
        let view = view(request.view, View::SchemaView)?;
        let schema = self.admin.get_table(&name).await?;
        Ok(convert::table(&schema, view))
    }

    async fn delete(&self, request: v2::DeleteTableRequest) -> Result<()> {
        let name = names::table(&request.name)?;
        let deleted = self.admin.delete_table(&name).await;
        self.router.forget(&name);
        deleted
    }

    async fn drop_rows(&self, request: v2::DropRowRangeRequest) -> Result<()> {
        let name = names::table(&request.name)?;
        let rows = dropped_rows(request.target)?;
        // A table that is not there is told of even when nothing is asked for.
        self.admin.get_table(&name).await?;
        match rows {
            Some(rows) => self.admin.drop_rows(&name, &rows).await,
            None => Ok(()),
        }
    }

    async fn modify(&self, request: v2::ModifyColumnFamiliesRequest) -> Result<v2::Table> {
        let name = names::table(&request.name)?;
        let changes = convert::family_changes(&request.modifications)?;
        let modified = self.admin.modify_families(&name, changes).await;
        self.router.forget(&name);
        Ok(convert::table(&*modified?, View::Full))
    }
}

/// The rows that a DropRowRange means; `None` when it asks for none.
fn dropped_rows(target: Option<Target>) -> Result<Option<RowRange>> {
    match target {
        None => {
            Err(Error::invalid("DropRowRange needs a row_key_prefix or all data as its target"))
        }
        Some(Target::DeleteAllDataFromTable(is_all)) => Ok(is_all.then(RowRange::all)),
        Some(Target::RowKeyPrefix(prefix)) if prefix.is_empty() => {
            Err(Error::invalid("row_key_prefix must not be empty"))
        }
        Some(Target::RowKeyPrefix(prefix)) => {
            row_key(&prefix)?;
            Ok(Some(RowRange::prefix(&prefix)))
        }
    }
}

pub(crate) fn new_table(request: v2::CreateTableRequest) -> Result<NewTable> {
    names::instance(&request.parent)?;
    validate_table_id(&request.table_id).map_err(Error::invalid)?;
    let table = request.table.unwrap_or_default();
    refuse(table.change_stream_config.is_some(), "A table's change_stream_config")?;
    refuse(table.deletion_protection, "A table's deletion_protection")?;
    refuse(table.automated_backup_config.is_some(), "A table's automated_backup_policy")?;
    refuse(table.tiered_storage_config.is_some(), "A table's tiered_storage_config")?;
    refuse(table.row_key_schema.is_some(), "A table's row_key_schema")?;
    Ok(NewTable {
        name: TableName { instance: request.parent, table: request.table_id },
        families: convert::new_families(&table.column_families)?,
        groups: Vec::new(),
        splits: splits(request.initial_splits)?,
        granularity: convert::granularity(table.granularity)?,
    })
}

/// The row keys at which a new table is divided: ascending, no doubles.
fn splits(wire: Vec<v2::create_table_request::Split>) -> Result<Vec<Bytes>> {
    let mut keys = Vec::with_capacity(wire.len().min(INITIAL_SPLITS_MAX));
    for split in wire {
        row_key(&split.key)?;
        keys.push(split.key);
    }
    keys.sort_unstable();
    keys.dedup();
    if keys.len() > INITIAL_SPLITS_MAX {
        return Err(Error::invalid(format!(
            "{} initial splits, more than {INITIAL_SPLITS_MAX}",
            keys.len()
        )));
    }
    Ok(keys)
}

fn view(wire: i32, default: View) -> Result<View> {
    match View::try_from(wire) {
        Ok(View::Unspecified) => Ok(default),
        Ok(view) => Ok(view),
        Err(_) => Err(Error::invalid(format!("invalid view {wire}"))),
    }
}

fn page_size(wire: i32) -> Result<usize> {
    match usize::try_from(wire) {
        Ok(0) => Ok(PAGE_TABLES_MAX),
        Ok(size) => Ok(size.min(PAGE_TABLES_MAX)),
        Err(_) => Err(Error::invalid(format!("page_size must not be negative, but is {wire}"))),
    }
}

pub(crate) fn answer<T>(result: Result<T>) -> std::result::Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| status(&error))
}

#[async_trait::async_trait]
impl BigtableTableAdmin for AdminGateway {
    async fn create_table(
        &self,
        request: Request<v2::CreateTableRequest>,
    ) -> std::result::Result<Response<v2::Table>, Status> {
        answer(self.create(request.into_inner()).await)
    }

    async fn list_tables(
        &self,
        request: Request<v2::ListTablesRequest>,
    ) -> std::result::Result<Response<v2::ListTablesResponse>, Status> {
        answer(self.list(request.into_inner()).await)
    }

    async fn get_table(
        &self,
        request: Request<v2::GetTableRequest>,
    ) -> std::result::Result<Response<v2::Table>, Status> {
        answer(self.get(request.into_inner()).await)
    }

    async fn delete_table(
        &self,
        request: Request<v2::DeleteTableRequest>,
    ) -> std::result::Result<Response<()>, Status> {
        answer(self.delete(request.into_inner()).await)
    }

    async fn drop_row_range(
        &self,
        request: Request<v2::DropRowRangeRequest>,
    ) -> std::result::Result<Response<()>, Status> {
        answer(self.drop_rows(request.into_inner()).await)
    }

    async fn modify_column_families(
        &self,
        request: Request<v2::ModifyColumnFamiliesRequest>,
    ) -> std::result::Result<Response<v2::Table>, Status> {
        answer(self.modify(request.into_inner()).await)
    }
}
