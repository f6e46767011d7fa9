//! What a tool, prompt or resource gives, shown to a person: text as text, the rest as files.

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use toolgate_types::clean::clean;

/// The blocks of a result, a paragraph each.
pub(crate) fn shown(blocks: &[Json]) -> anyhow::Result<String> {
    blocks.iter().map(block).collect()
}

fn block(block: &Json) -> anyhow::Result<String> {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    Ok(match text("type") {
        "text" => format!("{}\n", clean(text("text"))),
        kind @ ("image" | "audio") => {
            let path = save(text("data"), text("mimeType"))?;
            format!("[{kind} {} saved to {}]\n", clean(text("mimeType")), path.display())
        }
        "resource" => resource(&block["resource"])?,
        "resource_link" => format!("[resource {} · {}]\n", clean(text("uri")), clean(text("name"))),
        // A kind of a later revision is shown as it came.
        _ => format!("{}\n", clean(&serde_json::to_string_pretty(block)?)),
    })
}

/// The contents of a resource: text, or a file.
pub(crate) fn resource(resource: &Json) -> anyhow::Result<String> {
    let uri = clean(resource["uri"].as_str().unwrap_or_default()).into_owned();
    if let Some(text) = resource["text"].as_str() {
        return Ok(format!("[{uri}]\n{}\n", clean(text)));
    }
    let path = save(
        resource["blob"].as_str().unwrap_or_default(),
        resource["mimeType"].as_str().unwrap_or_default(),
    )?;
    Ok(format!("[{uri} saved to {}]\n", path.display()))
}

/// A file in the folder for temporary ones, with an ending that programs know it by.
fn save(data: &str, mime: &str) -> anyhow::Result<PathBuf> {
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
