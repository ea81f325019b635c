//! The project's own files, as the house rules read them.

use std::path::{Path, PathBuf};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests crate lies inside the workspace").to_path_buf()
}

/// A text file of the project.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path below the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl SourceFile {
    /// Lines before the unit tests at its end.
    pub fn lines_without_tests(&self) -> usize {
        let lines = || self.text.lines();
        lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or_else(|| lines().count())
    }

    /// Is it test code as a whole?
    pub fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.contains("/benches/")
    }
}

/// All project files whose name ends in one of `endings`, sorted by path; build outputs, hidden
/// folders and test inputs that are not ours to format are left out.
pub fn files(endings: &[&str]) -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder) {
            let name = entry.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if entry.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "tepui-data" {
                    folders.push(entry);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let path = entry.strip_prefix(&root).expect("inside the root");
                let path = path.to_string_lossy().replace('\\', "/");
                found.push(SourceFile { path, text: read(&entry) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

#[expect(clippy::disallowed_methods, reason = "the house rules read source files, not data")]
fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).expect("a project folder can be listed");
    listed.map(|entry| entry.expect("a folder entry can be read").path()).collect()
}

#[expect(clippy::disallowed_methods, reason = "the house rules read source files, not data")]
fn read(file: &Path) -> String {
    let bytes = std::fs::read(file).expect("a project file can be read");
    String::from_utf8(bytes).unwrap_or_else(|_| panic!("{} is not UTF-8", file.display()))
}
