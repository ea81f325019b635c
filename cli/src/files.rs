//! Reads the files and folders that people name on the command line.

use std::path::Path;

use bytes::Bytes;

/// The content of a file; `-` is the standard input.
///
/// # Errors
/// A text that names the file and says why it cannot be read, or that it has more than `bytes_max`.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names is none of the server's files"
)]
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Bytes, String> {
    use std::io::Read;
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let mut content = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(bytes_max + 1).read_to_end(&mut content).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(bytes_max + 1).read_to_end(&mut content).map_err(failed)?;
    }
    if content.len() as u64 > bytes_max {
        return Err(format!("{shown} is larger than {bytes_max} bytes"));
    }
    Ok(content.into())
}

/// A name in a folder.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) len: u64,
    pub(crate) is_folder: bool,
}

/// What a folder holds, sorted by name; nothing when it is absent.
///
/// # Errors
/// A text that names the folder and says why it cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "it looks at a folder from outside, and never through a server's file system"
)]
pub(crate) fn list(folder: &Path) -> Result<Vec<Listed>, String> {
    let shown = folder.display();
    let failed = |error: std::io::Error| format!("cannot list {shown}: {error}");
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut listed = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // Whoever holds the folder may have removed it meanwhile.
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        listed.push(Listed { name, len: found.len(), is_folder: found.is_dir() });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Does a process hold a lock on the file, as far as the system tells? Nothing is locked to find
/// out: that could refuse the folder to a server that starts just now.
pub(crate) fn is_locked(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = file.metadata() else {
        return false;
    };
    let Ok(locks) = read(Path::new("/proc/locks"), 16 << 20) else {
        return false;
    };
    // "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF": device, then the file's number.
    let inode = found.ino().to_string();
    String::from_utf8_lossy(&locks).lines().any(|line| {
        let mut fields = line.split_whitespace();
        let is_flock = fields.any(|field| field == "FLOCK");
        is_flock && fields.any(|field| field.rsplit(':').next() == Some(&inode) && field != inode)
    })
}
