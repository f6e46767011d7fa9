//! Extracts the text from HTML.

/// Removes tags and decodes entities.
pub(super) fn text(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = match tag(rest).or_else(|| entity(rest, &mut text)) {
            Some(after) => after,
            None => {
                text.push_str(&rest[..1]);
                &rest[1..]
            }
        };
    }
    text.push_str(rest);
    text
}

/// The rest after a tag; `None` if no tag starts here, as in `a < b`.
fn tag(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('<')?;
    inner.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!')).then_some(())?;
    inner.split_once('>').map(|(_, after)| after)
}

/// The rest after an entity; `None` if no entity starts here. Appends its character.
fn entity<'a>(text: &'a str, to: &mut String) -> Option<&'a str> {
    let (name, after) = text.strip_prefix('&')?.split_once(';').filter(|(name, _)| name.len() <= 8)?;
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    };
    to.push(character);
    Some(after)
}

#[test]
fn extracts_text_from_html() {
    for (html, read) in [
        ("plain", "plain"),
        ("a <b>bold</b> word", "a bold word"),
        ("Tom &amp; Jerry&#x27;s &quot;cat&quot; &#39;n &lt;mouse&gt;", "Tom & Jerry's \"cat\" 'n <mouse>"),
        ("1 < 2 & 3 > 2", "1 < 2 & 3 > 2"),
        ("&unknown; &#xD800; &", "&unknown; &#xD800; &"),
        ("<script>x", "x"),
        ("ends in <b", "ends in <b"),
        ("ü<br/>ö", "üö"),
    ] {
        assert_eq!(text(html), read, "{html}");
    }
}
