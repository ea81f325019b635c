//! Which locality group takes which family, and how its files are written.
//!
//! A layout says where cells are *written to*. Where they are is another matter: a file keeps the
//! families it was written with when the layout changes, so a read chooses files by what their
//! properties say, never by their group. Merges bring cells to their present group in time.

use sstable::WriterOptions;
use types::{FamilyId, GroupSettings, LocalityGroup};

use crate::options::StoreOptions;
use crate::version::Version;

/// The name of the group of every family that no other group names.
pub(crate) const DEFAULT_GROUP: &str = "default";
/// Target sizes of blocks that a group's settings may ask for, bytes.
const BLOCK_BYTES: (u32, u32) = (64, 1 << 20);

/// The locality groups of a range, the default group first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    groups: Vec<LocalityGroup>,
    /// The place of the group of every family that a group names, sorted.
    places: Vec<(FamilyId, usize)>,
}

impl Layout {
    /// The layout of a table whose schema has these groups.
    pub fn new(declared: &[LocalityGroup]) -> Layout {
        let is_default = |group: &&LocalityGroup| group.name == DEFAULT_GROUP;
        let settings = declared.iter().find(is_default).map(|group| group.settings);
        let name = DEFAULT_GROUP.to_owned();
        let settings = settings.unwrap_or_default();
        let mut groups = vec![LocalityGroup { name, families: Vec::new(), settings }];
        groups.extend(declared.iter().filter(|group| !is_default(group)).cloned());
        Layout::of_groups(groups)
    }

    /// The layout that a version records: its places are the version's.
    pub(crate) fn of(version: &Version) -> Layout {
        let groups = version.groups().iter().map(|group| LocalityGroup {
            name: group.name.clone(),
            families: group.families.clone(),
            settings: group.settings,
        });
        Layout::of_groups(groups.collect())
    }

    /// Does the version record this layout?
    pub(crate) fn is_of(&self, version: &Version) -> bool {
        let recorded = version.groups().iter().filter(|group| !group.is_retired);
        self.groups
            .iter()
            .map(|own| (&own.name, &own.families, own.settings))
            .eq(recorded.map(|group| (&group.name, &group.families, group.settings)))
    }

    fn of_groups(groups: Vec<LocalityGroup>) -> Layout {
        let numbered = groups.iter().enumerate();
        let mut places: Vec<(FamilyId, usize)> = numbered
            .flat_map(|(place, group)| group.families.iter().map(move |family| (*family, place)))
            .collect();
        places.sort_unstable();
        places.dedup_by_key(|(family, _)| *family);
        Layout { groups, places }
    }

    /// The groups.
    pub fn groups(&self) -> &[LocalityGroup] {
        &self.groups
    }

    /// The place of the group that takes a family.
    pub fn place_of(&self, family: FamilyId) -> usize {
        let found = self.places.binary_search_by_key(&family, |(known, _)| *known);
        found.map_or(0, |at| self.places[at].1)
    }
}

/// How a group's files are written: what its settings say, else what the server's options do.
pub(crate) fn writer_options(options: &StoreOptions, settings: &GroupSettings) -> WriterOptions {
    let size = |bytes: u64| usize::try_from(bytes).expect("a checked option fits");
    let (least, most) = BLOCK_BYTES;
    let block_bytes = settings.block_bytes.map(|bytes| u64::from(bytes.clamp(least, most)));
    WriterOptions {
        block_bytes: size(block_bytes.unwrap_or(options.block_bytes)),
        compression: settings.compression.unwrap_or(options.compression),
        bloom: settings.bloom,
        bloom_bits_per_key: u32::try_from(options.bloom_bits_per_key)
            .expect("a checked option fits"),
        value_block_threshold: size(options.value_block_threshold),
        ..WriterOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use types::{Bloom, Compression};

    use super::*;

    fn group(name: &str, families: &[u32], settings: GroupSettings) -> LocalityGroup {
        let families = families.iter().map(|id| FamilyId::new(*id)).collect();
        LocalityGroup { name: name.to_owned(), families, settings }
    }

    #[test]
    fn a_family_that_no_group_names_is_the_default_groups() {
        let in_memory = GroupSettings { in_memory: true, ..GroupSettings::default() };
        let declared = [
            group("hot", &[2, 5], GroupSettings::default()),
            group("default", &[], in_memory),
            group("cold", &[3], GroupSettings::default()),
        ];
        let layout = Layout::new(&declared);
        let names: Vec<&str> = layout.groups().iter().map(|group| &group.name[..]).collect();
        assert_eq!(names, ["default", "hot", "cold"]);
        assert!(layout.groups()[0].settings.in_memory);
        let places = [1, 2, 3, 4, 5].map(|id| layout.place_of(FamilyId::new(id)));
        assert_eq!(places, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn settings_go_before_the_servers_options() {
        let options = StoreOptions::default();
        let usual = writer_options(&options, &GroupSettings::default());
        assert_eq!((usual.block_bytes, usual.compression), (4096, Compression::Lz4));
        let own = GroupSettings {
            block_bytes: Some(u32::MAX),
            compression: Some(Compression::None),
            bloom: Bloom::Row,
            in_memory: false,
        };
        let own = writer_options(&options, &own);
        assert_eq!((own.block_bytes, own.compression), (1 << 20, Compression::None));
        assert_eq!(own.bloom, Bloom::Row);
    }
}
