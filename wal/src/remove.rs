use std::sync::Arc;

use storage::{FileSystem, Path};
use types::ErrorKind;

use crate::Result;

/// Removes a whole log that nothing refers to any more, then its folder. Oldest segments first,
/// each removal durable before the next, so that what a crash leaves is still a log without gaps;
/// doing it again finishes the rest.
///
/// # Errors
/// Those of the file system; what was removed so far stays removed.
pub async fn remove_log(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<()> {
    let entries = files.list(folder, "").await?;
    if !entries.is_empty() {
        // A younger segment whose removal is not durable must not outlive an older one.
        files.sync_folder(folder).await?;
    }
    for entry in entries {
        files.remove(&folder.join(&entry.name)).await?;
        files.sync_folder(folder).await?;
    }
    match files.remove_folder(folder).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
