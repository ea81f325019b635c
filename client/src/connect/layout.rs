//! How a table is stored, over the network: locality groups and scrubs.

use bytes::Bytes;
use proto::tepui::admin::v1;
use types::{Bloom, Compression, ErrorKind, GroupSettings, RangeId};

use super::Client;
use super::admin::{TableDescription, describe};
use super::retry::{Attempts, read_again, write_again};
use crate::{FileDamage, NewFamily, NewGroup, Result, ScrubbedFile};

/// A scrub of a table under way on the server. Dropping it ends it.
#[derive(Debug)]
pub struct RemoteScrub {
    client: Client,
    files: tonic::Streaming<v1::ScrubbedFile>,
}

impl Client {
    /// Creates a table with locality groups, in one step; see [`Client::create_table`].
    ///
    /// # Errors
    /// `InvalidArgument` and `NotFound` (a group's family): then there is no table.
    /// `AlreadyExists`, and what the connection fails with.
    pub async fn create_table_in_groups(
        &self,
        id: &str,
        families: &[NewFamily],
        splits: &[Bytes],
        groups: &[NewGroup],
    ) -> Result<TableDescription> {
        let table = Some(self.new_table(id, families, splits));
        let groups = groups.iter().map(wire_group).collect();
        let request = v1::CreateTableRequest { table, groups };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.layouts();
            match self.call(client.create_table(request.clone())).await {
                Ok(table) => return describe(table.into_inner()),
                Err(error) => {
                    let again = write_again(&error, false);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// Replaces the locality groups of the table called `id`.
    ///
    /// # Errors
    /// `NotFound` (the table or a family), `InvalidArgument`, and what the connection fails with.
    pub async fn set_groups(&self, id: &str, groups: &[NewGroup]) -> Result<Vec<NewGroup>> {
        let table = self.table_name(id).to_string();
        let groups = groups.iter().map(wire_group).collect();
        let request = v1::SetLocalityGroupsRequest { table, groups };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.layouts();
            match self.call(client.set_locality_groups(request.clone())).await {
                Ok(layout) => return Ok(groups_of(layout.into_inner())),
                Err(error) => {
                    let again = write_again(&error, true);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// The locality groups of the table called `id`.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn groups(&self, id: &str) -> Result<Vec<NewGroup>> {
        let request = v1::GetLayoutRequest { table: self.table_name(id).to_string() };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.layouts();
            match self.call(client.get_layout(request.clone())).await {
                Ok(layout) => return Ok(groups_of(layout.into_inner())),
                Err(error) => {
                    let again = read_again(&error);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// Starts to read all files of the table called `id` again.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn scrub(&self, id: &str) -> Result<RemoteScrub> {
        let request = v1::ScrubTableRequest { table: self.table_name(id).to_string() };
        let mut client = self.layouts();
        let files = self.call(client.scrub_table(request)).await?.into_inner();
        Ok(RemoteScrub { client: self.clone(), files })
    }
}

impl RemoteScrub {
    /// The next file that was read; `None` at the end.
    ///
    /// # Errors
    /// What the server or the connection fails with. Damage is no error.
    pub async fn next(&mut self) -> Result<Option<ScrubbedFile>> {
        let file = self.client.call(self.files.message()).await?;
        Ok(file.map(|file| ScrubbedFile {
            range: RangeId::new(file.range),
            path: file.path,
            bytes: file.bytes,
            damage: file.damage.map(|damage| FileDamage {
                kind: if damage.is_corrupt { ErrorKind::Corrupt } else { ErrorKind::Io },
                offset: damage.offset,
                what: damage.what,
            }),
            bytes_left: file.bytes_left,
        }))
    }
}

fn wire_group(group: &NewGroup) -> v1::LocalityGroup {
    let GroupSettings { block_bytes, compression, bloom, in_memory } = group.settings;
    let compression = match compression {
        None => v1::Compression::Unspecified,
        Some(Compression::None) => v1::Compression::None,
        Some(Compression::Lz4) => v1::Compression::Lz4,
    };
    let filters = match bloom {
        Bloom::RowAndColumn => v1::Filters::RowsAndColumns,
        Bloom::Row => v1::Filters::Rows,
        Bloom::None => v1::Filters::None,
    };
    v1::LocalityGroup {
        name: group.name.clone(),
        families: group.families.clone(),
        block_bytes: block_bytes.unwrap_or(0),
        compression: compression.into(),
        filters: filters.into(),
        in_memory,
    }
}

fn groups_of(layout: v1::Layout) -> Vec<NewGroup> {
    let group = |group: v1::LocalityGroup| {
        let settings = GroupSettings {
            block_bytes: (group.block_bytes > 0).then_some(group.block_bytes),
            compression: match group.compression() {
                v1::Compression::Unspecified => None,
                v1::Compression::None => Some(Compression::None),
                v1::Compression::Lz4 => Some(Compression::Lz4),
            },
            bloom: match group.filters() {
                v1::Filters::RowsAndColumns => Bloom::RowAndColumn,
                v1::Filters::Rows => Bloom::Row,
                v1::Filters::None => Bloom::None,
            },
            in_memory: group.in_memory,
        };
        NewGroup { name: group.name, families: group.families, settings }
    };
    layout.groups.into_iter().map(group).collect()
}
