//! Pictures and sounds that are given along with a task.

use std::path::Path;

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolgate_agent::model::Part;

/// Bytes of a file.
const LARGEST: u64 = 8 << 20;

/// A file as a part of what the person says, by its ending.
pub(crate) fn part(path: &Path) -> anyhow::Result<Part> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let (picture, mime) = match ending.as_str() {
        "png" => (true, "image/png"),
        "jpg" | "jpeg" => (true, "image/jpeg"),
        "gif" => (true, "image/gif"),
        "webp" => (true, "image/webp"),
        "wav" => (false, "audio/wav"),
        "mp3" => (false, "audio/mpeg"),
        "txt" | "md" | "csv" | "json" | "yaml" | "yml" => (false, ""),
        _ => bail!(
            "`{}` is neither a picture (png, jpg, gif, webp), nor a sound (wav, mp3), nor a text",
            path.display()
        ),
    };
    if fs_err::metadata(path)?.len() > LARGEST {
        bail!("`{}` has more than {LARGEST} bytes", path.display());
    }
    if mime.is_empty() {
        let text = format!("The file {}:\n{}", path.display(), fs_err::read_to_string(path)?);
        return Ok(Part::Text { text });
    }
    let (data, mime) = (STANDARD.encode(fs_err::read(path)?), mime.to_owned());
    Ok(if picture { Part::Image { mime, data } } else { Part::Audio { mime, data } })
}
