//! The links of a page, with their texts.
//!
//! The rules are those of README.md, "What is a link"; `check.py` follows them with another
//! parser. They ask of a parser only what any tokenizer knows: tags, their attributes, text. No
//! tree is built, because trees of broken pages differ from parser to parser.

use std::collections::BTreeMap;

use html5gum::{State, Token, Tokenizer};

use crate::address::{Folder, Site};

/// Bytes of a link's text.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Bytes of the joined texts of a page's links to one target.
const JOINED_BYTES_MAX: usize = 16 << 10;
/// What stands between joined texts.
const BETWEEN: &str = " | ";

/// What a page links to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// For each target, by its path in the URL, the joined texts.
    pub(crate) targets: BTreeMap<Vec<u8>, String>,
    /// Links that led to a target, counted singly.
    pub(crate) followed: u64,
    /// Links that did not: into the same page, to other hosts, or not to pages at all.
    pub(crate) dropped: u64,
}

/// Collects the links of the page at `url_path` with the content `html`.
pub(crate) fn links(site: &Site, url_path: &[u8], html: &[u8]) -> Links {
    let text = String::from_utf8_lossy(html).replace('\0', "\u{fffd}");
    let mut reader = Reader {
        site,
        folder: Folder::of(url_path),
        based: false,
        open: None,
        texts: BTreeMap::new(),
        links: Links::default(),
    };
    let mut tokens = Tokenizer::new(text.as_str());
    while let Some(token) = tokens.next() {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => {
                // The tokenizer leaves it to its user to know where tags are not tags.
                if matches!(&tag.name[..], b"script" | b"style") {
                    tokens.set_state(State::RawText);
                }
                let href = tag.attributes.get(&b"href"[..]);
                reader.start_tag(&tag.name, href.map(|href| &href[..]));
            }
            Token::EndTag(tag) if tag.name[..] == b"a"[..] => reader.end_link(),
            Token::String(text) => reader.text(&text),
            _ => {}
        }
    }
    reader.finish()
}

struct Reader<'a> {
    site: &'a Site,
    folder: Folder,
    /// Was there a `<base href>`? Only the first one counts.
    based: bool,
    /// The link that text goes to.
    open: Option<Open>,
    texts: BTreeMap<Vec<u8>, Vec<String>>,
    links: Links,
}

struct Open {
    target: Vec<u8>,
    text: String,
}

impl Reader<'_> {
    fn start_tag(&mut self, name: &[u8], href: Option<&[u8]>) {
        let href = href.map(String::from_utf8_lossy);
        match (name, href) {
            (b"a", href) => {
                self.end_link();
                if let Some(href) = href {
                    self.begin_link(&href);
                }
            }
            (b"base", Some(href)) if !self.based => {
                self.based = true;
                self.folder = self.site.rebase(&self.folder, &href);
            }
            _ => {}
        }
    }

    fn begin_link(&mut self, href: &str) {
        let Some(target) = self.site.resolve(&self.folder, href) else {
            self.links.dropped += 1;
            return;
        };
        self.links.followed += 1;
        self.open = Some(Open { target, text: String::new() });
    }

    fn text(&mut self, text: &[u8]) {
        if let Some(open) = &mut self.open {
            open.text.push_str(&String::from_utf8_lossy(text));
        }
    }

    fn end_link(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let mut text = collapsed(&open.text);
        cut(&mut text, TEXT_BYTES_MAX);
        let texts = self.texts.entry(open.target).or_default();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }

    fn finish(mut self) -> Links {
        self.end_link();
        for (target, texts) in self.texts {
            let mut joined = texts.join(BETWEEN);
            cut(&mut joined, JOINED_BYTES_MAX);
            self.links.targets.insert(target, joined);
        }
        self.links
    }
}

/// Runs of ASCII white space become one space; none is left at either end.
fn collapsed(text: &str) -> String {
    let words = text.split(|c: char| c.is_ascii_whitespace());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Cuts to at most `bytes_max` bytes, between two characters.
fn cut(text: &mut String, bytes_max: usize) {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `target=text` for each target of a page at /d/a.html.
    fn of(html: &str) -> Vec<String> {
        of_bytes(html.as_bytes())
    }

    fn of_bytes(html: &[u8]) -> Vec<String> {
        let site = Site::parse("https://docs.example/").unwrap();
        let links = links(&site, b"/d/a.html", html);
        let line = |(target, text): (&Vec<u8>, &String)| {
            format!("{}={text}", String::from_utf8_lossy(target))
        };
        links.targets.iter().map(line).collect()
    }

    #[test]
    fn texts_are_collapsed_and_decoded() {
        assert_eq!(
            of("<p>x <a class=k href=b.html>\n a <b>bold</b>\t&amp; &lt;T&gt; </a> y"),
            ["/d/b.html=a bold & <T>"]
        );
        assert_eq!(of("<A HREF='b.html'>x<br>y</A>"), ["/d/b.html=xy"]);
    }

    #[test]
    fn several_links_to_one_target_are_joined_without_repeats() {
        assert_eq!(
            of("<a href=b.html#1>one</a><a href=./b.html>two</a><a href=b.html>one</a>\
                <a href=b.html><img></a>"),
            ["/d/b.html=one | two"]
        );
    }

    #[test]
    fn a_link_without_text_is_a_link() {
        assert_eq!(of("<a href=b.html></a>"), ["/d/b.html="]);
    }

    #[test]
    fn a_link_ends_where_the_next_begins_or_the_page_ends() {
        assert_eq!(
            of("<a href=b.html>b <a href=c.html>c</a> d <a name=x>e <a href=f.html>f"),
            ["/d/b.html=b", "/d/c.html=c", "/d/f.html=f"]
        );
        assert_eq!(of("<a href=b.html>b <a href=#x>c</a>"), ["/d/b.html=b"]);
    }

    #[test]
    fn the_first_of_two_equal_attributes_counts() {
        assert_eq!(of("<a href=b.html href=c.html>x</a>"), ["/d/b.html=x"]);
    }

    #[test]
    fn a_slash_closes_no_link() {
        assert_eq!(of("<a href='b.html' />x</a>"), ["/d/b.html=x"]);
    }

    #[test]
    fn scripts_styles_and_comments_hold_no_links() {
        assert_eq!(
            of("<script>'<a href=b.html>'</script><style><a href=c.html></style>\
                <!-- <a href=d.html> --><a href=e.html>e<script>x</script>f</a>"),
            ["/d/e.html=exf"]
        );
    }

    #[test]
    fn titles_and_text_areas_are_ordinary_elements() {
        assert_eq!(
            of("<title><a href=b.html>b</a></title><textarea><a href=c.html>c</a>"),
            ["/d/b.html=b", "/d/c.html=c"]
        );
    }

    #[test]
    fn only_the_first_base_counts() {
        assert_eq!(of("<base href=/r/><base href=/s/><a href=b.html>x</a>"), ["/r/b.html=x"]);
    }

    #[test]
    fn damaged_characters_are_replaced() {
        assert_eq!(of_bytes(b"<a href=b.html>a\xff\0b</a>"), ["/d/b.html=a\u{fffd}\u{fffd}b"]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let html = format!("<a href=b.html>{}</a>", "é".repeat(600));
        assert_eq!(of(&html), [format!("/d/b.html={}", "é".repeat(512))]);
        let html: String =
            (0..40).map(|n| format!("<a href=b.html>{n}{}</a>", "x".repeat(2000))).collect();
        assert_eq!(of(&html)[0].len(), "/d/b.html=".len() + JOINED_BYTES_MAX);
    }

    #[test]
    fn links_are_counted_singly() {
        let site = Site::parse("https://docs.example/").unwrap();
        let html = b"<a href=b.html>1</a><a href=b.html>2</a><a href=#x>3</a><a>4</a>";
        let links = links(&site, b"/a.html", html);
        assert_eq!((links.followed, links.dropped), (2, 1));
    }
}
