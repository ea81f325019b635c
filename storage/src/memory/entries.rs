//! Names of the disk in memory: blobs and logs come and go.

use types::ErrorKind;

use super::state::{Change, File, Inode, Node, State};
use crate::local::LOG_SUFFIX;
use crate::{Entry, Error, Operation, Path, PlantedBug, Result, SealedLog};

/// How many files of former logs are kept.
const POOL_MAX: usize = 4;

impl State {
    /// Gives a name, or takes it away (`None`); not durable yet.
    fn set_name(&mut self, path: &Path, node: Option<Node>) {
        match node {
            Some(node) => self.names.insert(path.clone(), node),
            None => self.names.remove(path),
        };
        self.changes.push(Change { path: path.clone(), node });
    }

    /// Makes the changes of the names that `selected` picks durable.
    fn settle(&mut self, selected: impl Fn(&Path) -> bool) {
        let changes = std::mem::take(&mut self.changes);
        for change in changes {
            if !selected(&change.path) {
                self.changes.push(change);
                continue;
            }
            match change.node {
                Some(node) => self.durable_names.insert(change.path, node),
                None => self.durable_names.remove(&change.path),
            };
        }
        self.collect();
    }

    /// Makes the names in a folder, and its own, durable.
    pub(super) fn settle_folder(&mut self, folder: &Path) {
        let is_above = |path: &Path| {
            let rest = folder.as_str().strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.settle(|path| path.parent() == *folder || is_above(path));
    }

    /// The part of a larger operation that makes names durable.
    fn settle_step(
        &mut self,
        operation: Operation,
        path: &Path,
        selected: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        self.step(operation, path)?;
        if self.planted != Some(PlantedBug::SkipFolderSync) {
            self.settle(selected);
        }
        Ok(())
    }

    /// Makes the folders above `path`, durably.
    fn ensure_folders(&mut self, operation: Operation, path: &Path) -> Result<()> {
        let mut missing = Vec::new();
        let mut folder = path.parent();
        while folder != Path::root() {
            match self.names.get(&folder) {
                Some(Node::Folder) => {}
                Some(Node::File(_)) => {
                    let reason = format!("{folder:?} is a file");
                    return Err(Error::new(operation, path, ErrorKind::Io, reason));
                }
                None => missing.push(folder.clone()),
            }
            folder = folder.parent();
        }
        while let Some(folder) = missing.pop() {
            self.step(operation, path)?;
            self.set_name(&folder, Some(Node::Folder));
        }
        // Folders that another operation made may not be durable yet.
        let above = path.parent();
        let unsettled = |change: &Change| above == change.path || is_inside(&above, &change.path);
        if self.changes.iter().any(|change| change.node == Some(Node::Folder) && unsettled(change))
        {
            self.settle_step(operation, path, |found| above == *found || is_inside(&above, found))?;
        }
        Ok(())
    }

    fn check_absent(&self, operation: Operation, path: &Path) -> Result<()> {
        self.check_life(operation, path)?;
        if self.names.contains_key(path) {
            let reason = "it is there already";
            return Err(Error::new(operation, path, ErrorKind::AlreadyExists, reason));
        }
        Ok(())
    }

    /// Commits a blob: its content is synced before it has a name.
    pub(super) fn put_blob(
        &mut self,
        operation: Operation,
        path: &Path,
        content: Vec<u8>,
    ) -> Result<()> {
        self.check_absent(operation, path)?;
        self.ensure_folders(operation, path)?;
        self.step(operation, path)?;
        let inode = self.next_number();
        self.files.insert(inode, File::blob(content));
        self.set_name(path, Some(Node::File(inode)));
        self.settle_step(operation, path, |found| found == path)
    }

    /// Creates a log, in the file of a former one if there is one of that size. Returns the file,
    /// the number of the handle that may append, and the space set aside.
    pub(super) fn create_log(&mut self, path: &Path, reserve: u64) -> Result<(Inode, u64, u64)> {
        let operation = Operation::CreateLog;
        assert!(path.name().ends_with(LOG_SUFFIX), "{path:?} is not a log's name");
        self.check_absent(operation, path)?;
        let position = self.pool.iter().position(|(inode, _)| self.files[inode].len >= reserve);
        if position.is_none() {
            self.check_space(operation, path, reserve)?;
        }
        self.ensure_folders(operation, path)?;
        self.step(operation, path)?;
        let writer = self.next_number();
        let (inode, former) = match position {
            Some(position) => self.pool.remove(position),
            None => {
                let inode = self.next_number();
                self.files.insert(inode, File::log(reserve));
                (inode, path.clone())
            }
        };
        if position.is_some() {
            self.counters.recycled_logs += 1;
        }
        let file = self.files.get_mut(&inode).expect("it was just found or made");
        file.writer = Some(writer);
        file.appended = 0;
        file.appended_synced = 0;
        let reserved = file.len;
        self.set_name(path, Some(Node::File(inode)));
        // The former name must be gone for good before the first overwrite.
        self.settle_step(operation, path, |found| *found == *path || *found == former)?;
        Ok((inode, writer, reserved))
    }

    /// Removes a blob or a log; the latter's file goes to the pool if there is room.
    pub(super) fn remove_file(&mut self, path: &Path) -> Result<()> {
        self.check_life(Operation::Remove, path)?;
        let inode = match self.names.get(path) {
            None => return Ok(()),
            Some(Node::Folder) => {
                return Err(Error::new(Operation::Remove, path, ErrorKind::Io, "it is a folder"));
            }
            Some(Node::File(inode)) => *inode,
        };
        self.step(Operation::Remove, path)?;
        self.set_name(path, None);
        let is_open = self.files.get(&inode).is_none_or(|file| file.writer.is_some());
        if path.name().ends_with(LOG_SUFFIX) && !is_open && self.pool.len() < POOL_MAX {
            self.pool.push((inode, path.clone()));
        }
        Ok(())
    }

    pub(super) fn remove_folder(&mut self, folder: &Path) -> Result<()> {
        self.check_life(Operation::Remove, folder)?;
        if self.names.get(folder) != Some(&Node::Folder) {
            return Ok(());
        }
        if self.inside(folder).next().is_some() {
            let kind = ErrorKind::FailedPrecondition;
            return Err(Error::new(Operation::Remove, folder, kind, "the folder is not empty"));
        }
        self.step(Operation::Remove, folder)?;
        self.set_name(folder, None);
        Ok(())
    }

    /// Everything below a folder, at any depth, sorted by path.
    fn inside<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Node)> {
        self.names
            .range(folder.clone()..)
            .skip_while(move |(path, _)| *path == folder)
            .take_while(move |(path, _)| path.as_str().starts_with(folder.as_str()))
            .filter(move |(path, _)| is_inside(path, folder))
    }

    pub(super) fn list(&self, folder: &Path, after: &str) -> Vec<Entry> {
        let children = self.inside(folder).filter(|(path, _)| path.parent() == *folder);
        let mut found: Vec<Entry> = children
            .filter(|(path, _)| path.name() > after)
            .map(|(path, node)| Entry {
                name: path.name().to_owned(),
                len: self.file(path).map_or(0, |file| file.len),
                is_folder: *node == Node::Folder,
            })
            .collect();
        found.sort();
        found
    }

    pub(super) fn file_paths(&self) -> Vec<Path> {
        let files = self.names.iter().filter(|(_, node)| **node != Node::Folder);
        files.map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn open_reader(&mut self, path: &Path) -> Option<(Inode, u64)> {
        let Some(Node::File(inode)) = self.names.get(path).copied() else {
            return None;
        };
        let len = self.files.get(&inode)?.len;
        *self.readers.entry(inode).or_default() += 1;
        Some((inode, len))
    }

    pub(super) fn close_reader(&mut self, inode: Inode) {
        let Some(count) = self.readers.get_mut(&inode) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.readers.remove(&inode);
        }
    }

    pub(super) fn seal(&mut self, folder: &Path) -> Result<Vec<SealedLog>> {
        self.step(Operation::Seal, folder)?;
        self.settle_folder(folder);
        let found = self.list(folder, "");
        let logs = found.into_iter().filter(|it| !it.is_folder && it.name.ends_with(LOG_SUFFIX));
        let sealed: Vec<SealedLog> =
            logs.map(|it| SealedLog { path: folder.join(&it.name), len: it.len }).collect();
        for log in &sealed {
            if let Some(Node::File(inode)) = self.names.get(&log.path)
                && let Some(file) = self.files.get_mut(inode)
            {
                file.writer = None;
            }
        }
        Ok(sealed)
    }
}

/// Is `path` below `folder`?
fn is_inside(path: &Path, folder: &Path) -> bool {
    let rest = path.as_str().strip_prefix(folder.as_str());
    *folder == Path::root() || rest.is_some_and(|rest| rest.starts_with('/'))
}
