//! Where pages are: URLs, rows, and what a link on a page points to.
//!
//! The rules are those of README.md, "What is a link"; `check.py` follows them with code of its
//! own. A row is the URL without its scheme and with the labels of its host reversed, so that
//! the pages of a site, and of a folder, are neighbours.

use std::fmt;

use types::limits::ROW_KEY_BYTES_MAX;

/// What the address of a folder stands for.
const INDEX: &[u8] = b"index.html";

/// The address that a tree of pages is published under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Lower case, with its port if it has one.
    host: String,
    /// Begins and ends with a slash.
    path: String,
}

impl Site {
    /// Reads `https://HOST/PATH/`.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub(crate) fn parse(url: &str) -> Result<Site, String> {
        let malformed = || format!("invalid base {url:?}: expected http(s)://HOST/PATH/");
        let rest = url.strip_prefix("https://");
        let rest = rest.or_else(|| url.strip_prefix("http://"));
        let rest = rest.ok_or_else(malformed)?;
        let (host, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        if host.is_empty() || path.contains(['?', '#']) {
            return Err(malformed());
        }
        let slash = if path.ends_with('/') { "" } else { "/" };
        Ok(Site { host: host.to_ascii_lowercase(), path: format!("{path}{slash}") })
    }

    /// The row of the file at `path` (relative to the tree, divided by slashes).
    pub(crate) fn row(&self, path: &[u8]) -> Vec<u8> {
        self.row_of(&self.url_path(path))
    }

    /// The path in the URL of the file at `path`.
    pub(crate) fn url_path(&self, path: &[u8]) -> Vec<u8> {
        [self.path.as_bytes(), path].concat()
    }

    /// The row of the page at `url_path`, which begins with a slash.
    pub(crate) fn row_of(&self, url_path: &[u8]) -> Vec<u8> {
        let (name, port) = match self.host.split_once(':') {
            Some((name, port)) => (name, format!(":{port}")),
            None => (self.host.as_str(), String::new()),
        };
        let reversed: Vec<&str> = name.rsplit('.').collect();
        let mut row = (reversed.join(".") + &port).into_bytes();
        row.extend_from_slice(url_path);
        row
    }

    /// The row that somebody means who writes a URL, a path in the tree, or a row.
    pub(crate) fn row_meant(&self, text: &str) -> Vec<u8> {
        let root = Folder::of(self.path.as_bytes());
        if text.contains("://")
            && let Some(path) = self.resolve(&root, text)
        {
            return self.row_of(&path);
        }
        let own = self.row_of(b"/");
        if text.as_bytes().starts_with(&own) {
            return text.as_bytes().to_vec();
        }
        self.row(text.trim_start_matches('/').as_bytes())
    }

    /// The path in the URL of what `href` points to, from a page whose links are relative to
    /// `folder`. `None` for what is no link to a page of this host: see README.md.
    pub(crate) fn resolve(&self, folder: &Folder, href: &str) -> Option<Vec<u8>> {
        let target = self.target(folder, href)?;
        let mut path = without_dots(&target);
        if path.ends_with(b"/") {
            path.extend_from_slice(INDEX);
        }
        (self.row_of(&path).len() <= ROW_KEY_BYTES_MAX).then_some(path)
    }

    /// The folder that links are relative to after `<base href>`.
    pub(crate) fn rebase(&self, folder: &Folder, href: &str) -> Folder {
        match self.target(folder, href) {
            Some(target) => Folder::of(&without_dots(&target)),
            None => Folder(None),
        }
    }

    /// Steps 1 to 5 of the rules: everything but the dots and the index.
    fn target(&self, folder: &Folder, href: &str) -> Option<Vec<u8>> {
        let clean = href.replace(['\t', '\n', '\r', '\x0c'], "");
        let clean = clean.trim_matches(' ');
        let end = clean.find(['#', '?']).unwrap_or(clean.len());
        let rest = &clean[..end];
        if rest.is_empty() {
            return None;
        }
        let rest = match scheme(rest) {
            None => rest,
            Some((scheme, after)) if is_web(scheme) && after.starts_with("//") => after,
            Some(_) => return None,
        };
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(authority) => {
                let slash = authority.find('/').unwrap_or(authority.len());
                let (host, path) = authority.split_at(slash);
                if !host.eq_ignore_ascii_case(&self.host) {
                    return None;
                }
                if path.is_empty() { "/" } else { path }
            }
        };
        let decoded = percent_decoded(path.as_bytes());
        if path.starts_with('/') {
            return Some(decoded);
        }
        let mut target = folder.0.clone()?;
        target.extend_from_slice(&decoded);
        Some(target)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.host, self.path)
    }
}

/// What relative links are relative to: a path in a URL up to its last slash; `None` when a
/// `<base>` leads to another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder(Option<Vec<u8>>);

impl Folder {
    /// The folder of the page at `url_path`.
    pub(crate) fn of(url_path: &[u8]) -> Folder {
        let end = url_path.iter().rposition(|&byte| byte == b'/');
        Folder(Some(url_path[..end.map_or(0, |slash| slash + 1)].to_vec()))
    }
}

/// Divides `scheme:rest`.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.bytes();
    let valid = letters.next()?.is_ascii_alphabetic()
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    valid.then_some((scheme, rest))
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        match (first, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

/// Removes `.` and `..` from a path that begins with a slash.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let segments: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let mut kept: Vec<&[u8]> = Vec::with_capacity(segments.len());
    for (place, &segment) in segments.iter().enumerate() {
        let dots = segment == b"." || segment == b"..";
        if segment == b".." {
            kept.pop();
        }
        if !dots {
            kept.push(segment);
        } else if place + 1 == segments.len() {
            kept.push(b"");
        }
    }
    let mut out = b"/".to_vec();
    out.extend_from_slice(&kept.join(&b'/'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(page: &str, href: &str) -> Option<String> {
        let site = Site::parse("https://Docs.example/").unwrap();
        let folder = Folder::of(&site.url_path(page.as_bytes()));
        let path = site.resolve(&folder, href)?;
        Some(String::from_utf8(path).unwrap())
    }

    #[test]
    fn a_row_is_the_url_with_its_host_reversed() {
        let site = Site::parse("https://doc.rust-lang.org/").unwrap();
        assert_eq!(site.row(b"std/vec/index.html"), b"org.rust-lang.doc/std/vec/index.html");
        let site = Site::parse("http://a.b.example:8080/x/y").unwrap();
        assert_eq!(site.row(b"z.html"), b"example.b.a:8080/x/y/z.html");
        for bad in ["docs.example", "ftp://docs.example/", "https:///x/", "https://a/?b"] {
            Site::parse(bad).expect_err(bad);
        }
    }

    #[test]
    fn links_resolve_against_their_page() {
        for (href, expected) in [
            ("b.html", Some("/d/b.html")),
            ("./b.html", Some("/d/b.html")),
            ("../b.html", Some("/b.html")),
            ("../../../b.html", Some("/b.html")),
            ("e/../f/b.html#part", Some("/d/f/b.html")),
            ("/b.html?q=1#x", Some("/b.html")),
            ("..", Some("/index.html")),
            (".", Some("/d/index.html")),
            ("e/", Some("/d/e/index.html")),
            ("a//b.html", Some("/d/a//b.html")),
            (" b\n.html ", Some("/d/b.html")),
            ("a%20b.html", Some("/d/a b.html")),
            ("100%.html", Some("/d/100%.html")),
            ("//docs.EXAMPLE/x.html", Some("/x.html")),
            ("HTTPS://docs.example", Some("/index.html")),
            ("http://docs.example/x/", Some("/x/index.html")),
            ("https://other.example/x", None),
            ("mailto:a@docs.example", None),
            ("javascript:void(0)", None),
            ("https:x.html", None),
            ("#part", None),
            ("?q", None),
            ("", None),
            ("  ", None),
        ] {
            assert_eq!(resolve("d/a.html", href).as_deref(), expected, "{href:?}");
        }
        let long = "x".repeat(5000);
        assert_eq!(resolve("d/a.html", &long), None);
    }

    #[test]
    fn a_base_changes_what_links_are_relative_to() {
        let site = Site::parse("https://docs.example/").unwrap();
        let page = Folder::of(b"/d/a.html");
        let based = site.rebase(&page, "../e/x.html");
        assert_eq!(site.resolve(&based, "b.html").unwrap(), b"/e/b.html");
        let outside = site.rebase(&page, "https://other.example/");
        assert_eq!(site.resolve(&outside, "b.html"), None);
        assert_eq!(site.resolve(&outside, "/b.html").unwrap(), b"/b.html");
    }

    #[test]
    fn a_page_is_named_by_url_path_or_row() {
        let site = Site::parse("https://docs.example/").unwrap();
        for text in
            ["https://docs.example/d/a.html#x", "d/a.html", "/d/a.html", "example.docs/d/a.html"]
        {
            assert_eq!(site.row_meant(text), b"example.docs/d/a.html", "{text}");
        }
    }
}
