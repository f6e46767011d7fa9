//! Checks that several features use: URLs, headers, variables of programs, files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toolgate_types::ConfigString;
use url::Url;

use crate::context::Context;
use crate::keys::{NamedMap, Spanned};

/// Reports a URL that cannot be used. Returns `None` then.
pub(crate) fn check_url(url: &Spanned<ConfigString>, schemes: &[&str], cx: &mut Context<'_>) -> Option<()> {
    let shown = url.value.redacted();
    let example = format!("write a complete URL, such as `{}://localhost:8080/mcp`", schemes[0]);
    match Url::parse(url.value.expose()) {
        Ok(parsed) if !schemes.contains(&parsed.scheme()) => {
            let message = format!(
                "`{shown}` does not start with `{}://`{}",
                schemes.join("://` or `"),
                cx.location_suffix()
            );
            cx.error(url.span, message, example);
            None
        }
        // The parser takes `https:///mcp` for the host `mcp`, which is never intended.
        Ok(parsed)
            if parsed.host_str().is_some_and(|host| !host.is_empty())
                && !url.value.expose().contains(":///") =>
        {
            Some(())
        }
        Ok(_) => {
            cx.error(url.span, format!("`{shown}` names no host{}", cx.location_suffix()), example);
            None
        }
        Err(error) => {
            let message = format!("`{shown}` is not a URL{}: {error}", cx.location_suffix());
            cx.error(url.span, message, example);
            None
        }
    }
}

/// Returns the valid headers and reports the others.
pub(crate) fn resolve_headers(
    written: Option<Spanned<NamedMap<ConfigString>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, ConfigString> {
    let mut headers = BTreeMap::new();
    for (name, at) in written.into_iter().flat_map(|at| at.value.0) {
        if !is_header_name(&name) {
            let message = format!("`{name}` is not the name of a header{}", cx.location_suffix());
            cx.error(at.key_span, message, "names are letters, digits and `-`");
            continue;
        }
        if at.value.expose().chars().any(|c| c.is_control() && c != '\t') {
            let message = format!("the header `{name}` holds a control character{}", cx.location_suffix());
            cx.error(at.span, message, "a header is one line of text");
            continue;
        }
        headers.insert(name, ConfigString::hidden(at.value.expose()));
    }
    headers
}

/// True for a string that can be the name of a header.
pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_header_byte)
}

fn is_header_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Resolves the environment variables of a program.
pub(crate) fn resolve_env(
    file: Option<Spanned<NamedMap<Option<ConfigString>>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, Option<ConfigString>> {
    let mut env = BTreeMap::new();
    for (name, at) in file.into_iter().flat_map(|at| at.value.0) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{name}` cannot name a variable{}", cx.location_suffix());
            cx.error(at.key_span, message, "names have no `=` in them");
            continue;
        }
        if at.value.as_ref().is_some_and(|text| text.expose().contains('\0')) {
            let message = format!("the variable `{name}` holds a NUL character{}", cx.location_suffix());
            cx.error(at.span, message, "programs cannot receive NUL characters");
            continue;
        }
        env.insert(name, at.value.map(|text| ConfigString::hidden(text.expose())));
    }
    env
}

/// Resolves a path from the project folder and reports a missing file.
pub(crate) fn resolve_file(key: &str, at: &Spanned<ConfigString>, cx: &mut Context<'_>) -> Option<PathBuf> {
    let path = cx.project.join(at.value.expose());
    if path.is_file() || cx.awaits_input(&at.value) {
        return Some(path);
    }
    let message = format!("there is no file `{}` for `{key}`{}", at.value.redacted(), cx.location_suffix());
    cx.error(at.span, message, "create it, or correct the path; paths start at the project folder");
    None
}
