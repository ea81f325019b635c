//! Finds and reads the pages on this machine: the one module here that touches files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use types::Timestamp;
use types::limits::VALUE_BYTES_MAX;

/// Where the toolchain's documentation is published.
pub(crate) const RUST_BASE: &str = "https://doc.rust-lang.org/";
/// An address for trees that have none.
pub(crate) const EXAMPLE_BASE: &str = "https://docs.example/";
/// The small tree of our own, used where there is no larger one.
const OWN_PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pages");
const LINUX_PAGES: &str = "/usr/share/doc/linux-doc-6.1";
/// How deep folders may nest.
const DEPTH_MAX: usize = 64;

/// A tree of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Where it is published unless the caller knows better.
    pub(crate) base: &'static str,
}

impl Source {
    /// The tree in `folder`; without one, the toolchain's documentation, else that of Linux, else
    /// our own small tree.
    pub(crate) fn find(folder: Option<&Path>) -> Source {
        let rust = rust_pages();
        if let Some(folder) = folder {
            let is_rust = rust.as_deref() == Some(folder);
            return Source {
                folder: folder.to_owned(),
                base: if is_rust { RUST_BASE } else { EXAMPLE_BASE },
            };
        }
        if let Some(folder) = rust.filter(|folder| folder.is_dir()) {
            return Source { folder, base: RUST_BASE };
        }
        let linux = Path::new(LINUX_PAGES);
        let folder = if linux.is_dir() { linux } else { Path::new(OWN_PAGES) };
        Source { folder: folder.to_owned(), base: EXAMPLE_BASE }
    }
}

fn rust_pages() -> Option<PathBuf> {
    let answer = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = answer.stdout.trim_ascii();
    let found = answer.status.success() && !sysroot.is_empty();
    found.then(|| Path::new(OsStr::from_bytes(sysroot)).join("share/doc/rust/html"))
}

/// A page that was found, not read yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    /// Its path in the tree, divided by slashes.
    pub(crate) path: Vec<u8>,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// When it was last changed, in whole milliseconds: the age of its cells.
    pub(crate) changed: Timestamp,
}

/// The pages of a tree: its regular files called `*.html`, sorted by the bytes of their path.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The pages, at most as many as were asked for.
    pub(crate) found: Vec<Found>,
    /// Pages that no cell can hold.
    pub(crate) too_large: Vec<PathBuf>,
}

/// Finds the pages under `root`; with a `limit`, the first so many.
///
/// # Errors
/// A text that says which folder cannot be read.
pub(crate) fn pages(root: &Path, limit: Option<usize>) -> Result<Pages, String> {
    let mut pages = Pages::default();
    walk(root, &mut Vec::new(), 0, &mut pages)?;
    pages.found.sort_unstable();
    if let Some(limit) = limit {
        pages.found.truncate(limit);
    }
    Ok(pages)
}

#[expect(clippy::disallowed_methods, reason = "the pages are the user's files, not the server's")]
fn walk(
    folder: &Path,
    relative: &mut Vec<u8>,
    depth: usize,
    pages: &mut Pages,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    if depth > DEPTH_MAX {
        return Err(format!("{}: folders nest too deep", folder.display()));
    }
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name();
        let parent_len = relative.len();
        relative.extend_from_slice(name.as_bytes());
        if kind.is_dir() {
            relative.push(b'/');
            walk(&entry.path(), relative, depth + 1, pages)?;
        } else if kind.is_file() && name.as_bytes().ends_with(b".html") {
            let metadata = entry.metadata().map_err(failed)?;
            let found = Found {
                path: relative.clone(),
                bytes: metadata.len(),
                changed: whole_millis(metadata.modified().ok()),
            };
            if found.bytes > VALUE_BYTES_MAX as u64 {
                pages.too_large.push(entry.path());
            } else {
                pages.found.push(found);
            }
        }
        relative.truncate(parent_len);
    }
    Ok(())
}

fn whole_millis(changed: Option<std::time::SystemTime>) -> Timestamp {
    let since = changed.and_then(|changed| changed.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .and_then(|millis| Timestamp::from_micros(millis.checked_mul(1000)?))
        .unwrap_or(Timestamp::ZERO)
}

/// Reads a page.
///
/// # Errors
/// A text that says which.
#[expect(clippy::disallowed_methods, reason = "the pages are the user's files, not the server's")]
pub(crate) fn read(root: &Path, page: &Found) -> Result<Vec<u8>, String> {
    let path = root.join(OsStr::from_bytes(&page.path));
    std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes its own tree")]
    fn pages_are_sorted_by_their_whole_path_and_limited() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b.html", "a/x.html", "a.html", "a/y.htm", "c.txt", "a/b/z.html"] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let names = |limit| -> Vec<String> {
            let pages = pages(root.path(), limit).unwrap();
            let name = |found: &Found| String::from_utf8(found.path.clone()).unwrap();
            pages.found.iter().map(name).collect()
        };
        assert_eq!(names(None), ["a.html", "a/b/z.html", "a/x.html", "b.html"]);
        assert_eq!(names(Some(2)), ["a.html", "a/b/z.html"]);
        let page = &pages(root.path(), None).unwrap().found[2];
        assert_eq!(read(root.path(), page).unwrap(), b"a/x.html");
        assert_eq!(page.bytes, 8);
        assert!(page.changed > Timestamp::ZERO);
        assert_eq!(page.changed.micros() % 1000, 0);
    }

    #[test]
    fn the_tree_of_our_own_is_there() {
        let pages = pages(Path::new(OWN_PAGES), None).unwrap();
        assert!(pages.found.len() >= 20, "{} pages", pages.found.len());
        assert!(pages.too_large.is_empty());
    }
}
