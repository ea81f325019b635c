//! The service `tepui.admin.v1.Layouts` over `AdminService` and the router.

use std::pin::Pin;
use std::sync::Arc;

use client::{AdminService, Error, NewGroup, NewTable, Result, Router, ScrubbedFile};
use futures::Stream;
use proto::google::bigtable::admin::v2;
use proto::google::bigtable::admin::v2::table::View;
use proto::tepui::admin::v1;
use proto::tepui::admin::v1::layouts_server::Layouts;
use tonic::{Request, Response, Status};
use types::{Bloom, Compression, ErrorKind, GroupSettings, TableSchema};

use crate::admin::new_table;
use crate::convert;
use crate::status::status;
use crate::validate::names;

/// Serves the layouts of tables.
#[derive(Clone)]
pub struct LayoutGateway {
    admin: Arc<dyn AdminService>,
    router: Arc<Router>,
}

impl std::fmt::Debug for LayoutGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LayoutGateway")
    }
}

type Files = Pin<Box<dyn Stream<Item = std::result::Result<v1::ScrubbedFile, Status>> + Send>>;

impl LayoutGateway {
    /// Changes schemas through `admin`, and reads tables' files again through `router`.
    pub fn new(admin: Arc<dyn AdminService>, router: Arc<Router>) -> LayoutGateway {
        LayoutGateway { admin, router }
    }

    async fn create(&self, request: v1::CreateTableRequest) -> Result<v2::Table> {
        let groups = request.groups.into_iter().map(new_group).collect::<Result<_>>()?;
        let table = NewTable { groups, ..new_table(request.table.unwrap_or_default())? };
        let name = table.name.clone();
        let created = self.admin.create_table(table).await;
        self.router.forget(&name);
        Ok(convert::table(&*created?, View::Full))
    }

    async fn set(&self, request: v1::SetLocalityGroupsRequest) -> Result<v1::Layout> {
        let name = names::table(&request.table)?;
        let groups = request.groups.into_iter().map(new_group).collect::<Result<_>>()?;
        let changed = self.admin.set_groups(&name, groups).await;
        self.router.forget(&name);
        Ok(layout(&*changed?))
    }

    async fn get(&self, request: v1::GetLayoutRequest) -> Result<v1::Layout> {
        let name = names::table(&request.table)?;
        Ok(layout(&*self.admin.get_table(&name).await?))
    }

    async fn scrub(&self, request: v1::ScrubTableRequest) -> Result<Files> {
        let name = names::table(&request.table)?;
        self.admin.get_table(&name).await?;
        let scrub = self.router.scrub(&name);
        Ok(Box::pin(futures::stream::try_unfold(scrub, async |mut scrub| {
            let file = scrub.next().await.map_err(|error| status(&error))?;
            Ok(file.map(|file| (wire_file(file), scrub)))
        })))
    }
}

fn new_group(wire: v1::LocalityGroup) -> Result<NewGroup> {
    let unknown = |what: &str| Error::invalid(format!("unknown {what} of group {:?}", wire.name));
    let compression = match v1::Compression::try_from(wire.compression) {
        Ok(v1::Compression::Unspecified) => None,
        Ok(v1::Compression::None) => Some(Compression::None),
        Ok(v1::Compression::Lz4) => Some(Compression::Lz4),
        Err(_) => return Err(unknown("compression")),
    };
    let bloom = match v1::Filters::try_from(wire.filters) {
        Ok(v1::Filters::RowsAndColumns) => Bloom::RowAndColumn,
        Ok(v1::Filters::Rows) => Bloom::Row,
        Ok(v1::Filters::None) => Bloom::None,
        Err(_) => return Err(unknown("filters")),
    };
    let block_bytes = (wire.block_bytes > 0).then_some(wire.block_bytes);
    let in_memory = wire.in_memory;
    let settings = GroupSettings { block_bytes, compression, bloom, in_memory };
    Ok(NewGroup { name: wire.name, families: wire.families, settings })
}

fn layout(schema: &TableSchema) -> v1::Layout {
    let groups = schema.groups.iter().map(|group| {
        let names = group.families.iter().filter_map(|id| schema.family_by_id(*id));
        v1::LocalityGroup {
            name: group.name.clone(),
            families: names.map(|family| family.name.clone()).collect(),
            block_bytes: group.settings.block_bytes.unwrap_or(0),
            compression: match group.settings.compression {
                None => v1::Compression::Unspecified,
                Some(Compression::None) => v1::Compression::None,
                Some(Compression::Lz4) => v1::Compression::Lz4,
            }
            .into(),
            filters: match group.settings.bloom {
                Bloom::RowAndColumn => v1::Filters::RowsAndColumns,
                Bloom::Row => v1::Filters::Rows,
                Bloom::None => v1::Filters::None,
            }
            .into(),
            in_memory: group.settings.in_memory,
        }
    });
    v1::Layout { table: schema.name.to_string(), groups: groups.collect() }
}

fn wire_file(file: ScrubbedFile) -> v1::ScrubbedFile {
    v1::ScrubbedFile {
        range: file.range.get(),
        path: file.path,
        bytes: file.bytes,
        damage: file.damage.map(|damage| v1::FileDamage {
            is_corrupt: damage.kind == ErrorKind::Corrupt,
            offset: damage.offset,
            what: damage.what,
        }),
        bytes_left: file.bytes_left,
    }
}

#[async_trait::async_trait]
impl Layouts for LayoutGateway {
    type ScrubTableStream = Files;

    async fn create_table(
        &self,
        request: Request<v1::CreateTableRequest>,
    ) -> std::result::Result<Response<v2::Table>, Status> {
        let answer = self.create(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status(&error))
    }

    async fn set_locality_groups(
        &self,
        request: Request<v1::SetLocalityGroupsRequest>,
    ) -> std::result::Result<Response<v1::Layout>, Status> {
        let answer = self.set(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status(&error))
    }

    async fn get_layout(
        &self,
        request: Request<v1::GetLayoutRequest>,
    ) -> std::result::Result<Response<v1::Layout>, Status> {
        let answer = self.get(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status(&error))
    }

    async fn scrub_table(
        &self,
        request: Request<v1::ScrubTableRequest>,
    ) -> std::result::Result<Response<Files>, Status> {
        let answer = self.scrub(request.into_inner()).await;
        answer.map(Response::new).map_err(|error| status(&error))
    }
}
