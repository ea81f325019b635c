use std::fmt;
use std::sync::Arc;

/// Where a file lies below a file system's root: names joined by `/`, never absolute, no `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<str>);

impl Path {
    /// The file system's own folder.
    pub fn root() -> Path {
        Path(Arc::from(""))
    }

    /// Wraps a relative path. Paths are ours, never a client's, so a malformed one is a bug.
    pub fn new(text: &str) -> Path {
        let valid = |name: &str| !name.is_empty() && name != "." && name != "..";
        assert!(text.is_empty() || text.split('/').all(valid), "malformed path {text:?}");
        Path(Arc::from(text))
    }

    /// The path of `name` (one name or several joined by `/`) inside this folder.
    pub fn join(&self, name: &str) -> Path {
        if self.0.is_empty() {
            return Path::new(name);
        }
        Path::new(&format!("{}/{name}", self.0))
    }

    /// The folder that holds it; the root's is the root.
    pub fn parent(&self) -> Path {
        Path(Arc::from(self.0.rsplit_once('/').map_or("", |(folder, _)| folder)))
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}
