//! Prints content of tools, prompts and resources: text as text, media as temporary files.

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use toolgate_redact::printable;
use toolgate_redact::sanitize::sanitize;

/// Formats content blocks, one paragraph each.
pub(crate) fn blocks_text(blocks: &[Json]) -> anyhow::Result<String> {
    blocks.iter().map(block_text).collect()
}

fn block_text(block: &Json) -> anyhow::Result<String> {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    Ok(match text("type") {
        "text" => format!("{}\n", sanitize(text("text"))),
        kind @ ("image" | "audio") => {
            let path = save_media(text("data"), text("mimeType"))?;
            format!("[{kind} {} saved to {}]\n", printable(text("mimeType")), path.display())
        }
        "resource" => resource_text(&block["resource"])?,
        "resource_link" => format!("[resource {} · {}]\n", printable(text("uri")), printable(text("name"))),
        // An unknown type, from a later protocol revision, is printed as JSON.
        _ => format!("{}\n", sanitize(&serde_json::to_string_pretty(block)?)),
    })
}

/// Formats a resource: its text, or the path of the saved file.
pub(crate) fn resource_text(resource: &Json) -> anyhow::Result<String> {
    let uri = printable(resource["uri"].as_str().unwrap_or_default());
    if let Some(text) = resource["text"].as_str() {
        return Ok(format!("[{uri}]\n{}\n", sanitize(text)));
    }
    let path = save_media(
        resource["blob"].as_str().unwrap_or_default(),
        resource["mimeType"].as_str().unwrap_or_default(),
    )?;
    Ok(format!("[{uri} saved to {}]\n", path.display()))
}

/// Saves base64 data to a temporary file with a matching extension.
fn save_media(data: &str, mime: &str) -> anyhow::Result<PathBuf> {
    let bytes = STANDARD.decode(data).context("the content is not valid base64")?;
    let known = [
        ("image/png", "png"),
        ("image/jpeg", "jpg"),
        ("image/gif", "gif"),
        ("image/webp", "webp"),
        ("image/svg+xml", "svg"),
        ("audio/wav", "wav"),
        ("audio/mpeg", "mp3"),
        ("audio/ogg", "ogg"),
        ("application/pdf", "pdf"),
        ("application/gzip", "gz"),
    ];
    let ending = known.iter().find(|(name, _)| *name == mime).map_or("bin", |(_, ending)| ending);
    let file = tempfile::Builder::new().prefix("toolgate-").suffix(&format!(".{ending}")).tempfile()?;
    let (mut file, path) = file.keep()?;
    std::io::Write::write_all(&mut file, &bytes)?;
    Ok(path)
}
