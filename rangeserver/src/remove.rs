use std::sync::Arc;

use storage::{FileSystem, Path};

/// Removes a folder with all that is in it. Absent is not an error, so a removal that a crash broke
/// off can be done again.
pub(crate) async fn remove_tree(files: &Arc<dyn FileSystem>, folder: &Path) -> storage::Result<()> {
    // Folders are removed when all that was found in them is gone: the deepest first.
    let mut folders = vec![folder.clone()];
    let mut seen = 0;
    while let Some(present) = folders.get(seen).cloned() {
        seen += 1;
        for entry in files.list(&present, "").await? {
            let path = present.join(&entry.name);
            if entry.is_folder {
                folders.push(path);
            } else {
                files.remove(&path).await?;
            }
        }
    }
    for empty in folders.into_iter().rev() {
        files.remove_folder(&empty).await?;
    }
    Ok(())
}
