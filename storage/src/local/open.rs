//! Opening a data folder: everything that must hold before it is used. See the layout's steps.

use std::path::{Path, PathBuf};

use env::Env;
use types::ErrorKind;

use super::{
    FORMAT, LOCK_FILE, LocalOptions, RECYCLED_FOLDER, Shared, TMP_FOLDER, VERSION_FILE, disk,
};
use crate::{Error, Operation, Result};

/// `VERSION` is a few lines; more than this is not ours.
const VERSION_BYTES_MAX: u64 = 4096;
/// What the first line of `VERSION` begins with, in every format.
const VERSION_TITLE: &str = "tepui data folder, format ";
/// `VERSION` before it has its name.
const VERSION_TMP: &str = ".VERSION.tmp";
/// What may lie in a folder without `VERSION`: left by an open that did not end, or by mkfs.
const NOT_FOREIGN: [&str; 3] = [LOCK_FILE, VERSION_TMP, "lost+found"];

pub(super) fn open(root: &Path, env: Env, options: &LocalOptions) -> Result<Shared> {
    refuse_network(root)?;
    make_root(root)?;
    read_version(root)?;
    let lock = take_lock(root)?;
    let folder_id = match read_version(root)? {
        Some(folder_id) => folder_id,
        None => write_version(root, &env)?,
    };
    // Only now that the folder is known to be ours: what lies in these is deleted at will.
    make(&root.join(TMP_FOLDER))?;
    make(&root.join(RECYCLED_FOLDER))?;
    sync_root(root)?;
    empty_tmp(root)?;
    let shared = Shared::new(root.to_path_buf(), env, options, folder_id, lock);
    shared.load_pool()?;
    Ok(shared)
}

fn refused(kind: ErrorKind, reason: impl Into<String>) -> Error {
    Error::new(Operation::OpenFileSystem, &crate::Path::root(), kind, reason)
}

fn failed(path: &Path, source: &std::io::Error) -> Error {
    let kind = Error::from_io(Operation::OpenFileSystem, &crate::Path::root(), source).kind();
    let hint = match kind {
        ErrorKind::PermissionDenied => "; it must be a folder that this user may write to",
        _ => "",
    };
    refused(kind, format!("{}: {source}{hint}", path.display()))
}

fn refuse_network(root: &Path) -> Result<()> {
    let mut place = std::path::absolute(root).map_err(|error| failed(root, &error))?;
    let found = loop {
        match rustix::fs::statfs(&place) {
            Ok(found) => break found,
            Err(rustix::io::Errno::NOENT) if place.pop() => {}
            Err(error) => return Err(failed(&place, &error.into())),
        }
    };
    // The magic numbers are 32 bits; what the call returns is wider on some machines.
    #[expect(clippy::cast_possible_truncation, reason = "only the low 32 bits are the number")]
    #[expect(clippy::cast_sign_loss, reason = "only the low 32 bits are the number")]
    let magic = found.f_type as u32;
    let Some(name) = network_name(magic) else {
        return Ok(());
    };
    Err(refused(
        ErrorKind::FailedPrecondition,
        format!(
            "{} is on a network file system ({name}), where locks and syncs cannot be relied \
             upon; use a folder on a local disk",
            root.display()
        ),
    ))
}

/// The name of a file system that is not on a disk of this machine, by the number in `statfs`.
fn network_name(magic: u32) -> Option<&'static str> {
    match magic {
        0x0000_6969 => Some("NFS"),
        0x0000_517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x6573_5546 => Some("FUSE"),
        _ => None,
    }
}

fn make(path: &Path) -> Result<()> {
    disk::make_folder(path).map_err(|error| failed(path, &error))
}

/// Makes the folder and those above it, and makes their names durable.
fn make_root(root: &Path) -> Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let absolute = std::path::absolute(root).map_err(|error| failed(root, &error))?;
    let missing: Vec<PathBuf> =
        absolute.ancestors().take_while(|folder| !folder.is_dir()).map(Path::to_path_buf).collect();
    for folder in missing.iter().rev() {
        make(folder)?;
        let parent = folder.parent().unwrap_or(folder);
        disk::sync_folder(parent).map_err(|error| failed(parent, &error))?;
    }
    Ok(())
}

/// Reads the folder's id from `VERSION`; `None` in a folder that is still empty. Writes nothing.
fn read_version(root: &Path) -> Result<Option<String>> {
    let path = root.join(VERSION_FILE);
    let content = match disk::read_small(&path, VERSION_BYTES_MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            refuse_foreign(root)?;
            return Ok(None);
        }
        Err(error) => return Err(failed(&path, &error)),
    };
    parse_version(root, &content).map(Some)
}

/// The id that the file `VERSION` of the data folder `root` gives it.
///
/// # Errors
/// The content is damaged, of a newer format, or not Tepui's.
pub fn parse_version(root: &Path, content: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines();
    let Some(number) = lines.next().and_then(|line| line.strip_prefix(VERSION_TITLE)) else {
        return Err(foreign(root, &format!("its file {VERSION_FILE} is not Tepui's")));
    };
    let damaged = || {
        refused(
            ErrorKind::Corrupt,
            format!("{} is damaged: {text:?}", root.join(VERSION_FILE).display()),
        )
    };
    let format: u32 = number.parse().map_err(|_| damaged())?;
    if format > FORMAT {
        return Err(refused(
            ErrorKind::FailedPrecondition,
            format!(
                "{} has format {format}, made by a newer program; this one reads formats up to \
                 {FORMAT}; nothing was changed",
                root.display()
            ),
        ));
    }
    let folder_id = lines.next().and_then(|line| line.strip_prefix("id ")).ok_or_else(damaged)?;
    let is_valid = folder_id.len() == 32 && folder_id.bytes().all(|b| b.is_ascii_hexdigit());
    if format == 0 || !is_valid {
        return Err(damaged());
    }
    Ok(folder_id.to_owned())
}

fn foreign(root: &Path, what: &str) -> Error {
    refused(
        ErrorKind::FailedPrecondition,
        format!(
            "{} is not a data folder of Tepui: {what}; name an empty or a new folder",
            root.display()
        ),
    )
}

fn refuse_foreign(root: &Path) -> Result<()> {
    let found = disk::list(root, "").map_err(|error| failed(root, &error))?.unwrap_or_default();
    match found.iter().find(|entry| !NOT_FOREIGN.contains(&entry.name.as_str())) {
        Some(entry) => {
            Err(foreign(root, &format!("it holds {:?} but no {VERSION_FILE}", entry.name)))
        }
        None => Ok(()),
    }
}

fn take_lock(root: &Path) -> Result<disk::Lock> {
    let path = root.join(LOCK_FILE);
    let lock = match disk::lock(&path).map_err(|error| failed(&path, &error))? {
        Ok(lock) => lock,
        Err(holder) => {
            let holder = holder.trim();
            let is_pid = !holder.is_empty() && holder.bytes().all(|b| b.is_ascii_digit());
            let holder = if is_pid { format!(" (pid {holder})") } else { String::new() };
            return Err(refused(
                ErrorKind::FailedPrecondition,
                format!("{} is in use by another process{holder}", root.display()),
            ));
        }
    };
    // A courtesy to whoever finds the folder locked: a full disk must not stop an open.
    let _ = disk::write_lock(&lock, &format!("{}\n", std::process::id()));
    Ok(lock)
}

fn write_version(root: &Path, env: &Env) -> Result<String> {
    let folder_id = format!("{:032x}", env.random_u128());
    let tmp = root.join(VERSION_TMP);
    let path = root.join(VERSION_FILE);
    let text = format!("{VERSION_TITLE}{FORMAT}\nid {folder_id}\n");
    let write = || {
        disk::remove_file(&tmp)?;
        let file = disk::create_new(&tmp)?;
        std::io::Write::write_all(&mut &file, text.as_bytes())?;
        file.sync_all()?;
        disk::move_new(&tmp, &path)?;
        disk::sync_folder(root)
    };
    write().map_err(|error| failed(&path, &error))?;
    Ok(folder_id)
}

/// Makes the folder's first names and its own durable: whoever made them may have died before.
fn sync_root(root: &Path) -> Result<()> {
    disk::sync_folder(root).map_err(|error| failed(root, &error))?;
    let absolute = std::path::absolute(root).map_err(|error| failed(root, &error))?;
    let Some(parent) = absolute.parent() else {
        return Ok(());
    };
    match disk::sync_folder(parent) {
        // Another user's folder, which this one may pass through but not open.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        other => other.map_err(|error| failed(parent, &error)),
    }
}

fn empty_tmp(root: &Path) -> Result<()> {
    let tmp = root.join(TMP_FOLDER);
    let found = disk::list(&tmp, "").map_err(|error| failed(&tmp, &error))?.unwrap_or_default();
    for entry in found {
        let path = tmp.join(&entry.name);
        disk::remove_file(&path).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        for magic in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x6573_5546] {
            assert!(network_name(magic).is_some(), "{magic:x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlayfs.
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert!(network_name(magic).is_none(), "{magic:x}");
        }
    }

    #[test]
    fn a_damaged_version_file_is_an_error_and_never_a_panic() {
        let root = Path::new("folder");
        let id = "0123456789abcdef0123456789abcdef";
        let good = format!("{VERSION_TITLE}1\nid {id}\nlater formats may say more\n");
        assert_eq!(parse_version(root, good.as_bytes()).unwrap(), id);
        let cases = [
            ("", ErrorKind::FailedPrecondition),
            ("postgres 16\n", ErrorKind::FailedPrecondition),
            ("tepui data folder, format 2\nwhatever", ErrorKind::FailedPrecondition),
            ("tepui data folder, format x\n", ErrorKind::Corrupt),
            ("tepui data folder, format 99999999999\n", ErrorKind::Corrupt),
            ("tepui data folder, format 1\n", ErrorKind::Corrupt),
            ("tepui data folder, format 1\nid 12\n", ErrorKind::Corrupt),
            (
                "tepui data folder, format 0\nid 0123456789abcdef0123456789abcdef\n",
                ErrorKind::Corrupt,
            ),
        ];
        for (text, kind) in cases {
            assert_eq!(parse_version(root, text.as_bytes()).unwrap_err().kind(), kind, "{text}");
        }
        assert!(parse_version(root, &[0xff; 100]).is_err());
    }
}
