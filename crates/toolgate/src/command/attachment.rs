//! Files attached to a task: images, audio, PDFs and text.

use std::path::Path;

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolgate_agent::model::{PDF, Part};

/// Bytes of a file.
const MAX_BYTES: u64 = 8 << 20;

/// Reads a file as message content. The extension decides its type.
pub(crate) fn read_attachment(path: &Path) -> anyhow::Result<Part> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let mime = match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "pdf" => PDF,
        "txt" | "md" | "csv" | "json" | "yaml" | "yml" => "",
        _ => bail!(
            "unsupported file type: `{}` (supported: png, jpg, gif, webp, wav, mp3, pdf, txt, md, csv, json, yaml)",
            path.display()
        ),
    };
    if fs_err::metadata(path)?.len() > MAX_BYTES {
        bail!("`{}` has more than {MAX_BYTES} bytes", path.display());
    }
    if mime.is_empty() {
        let text = format!("The file {}:\n{}", path.display(), fs_err::read_to_string(path)?);
        return Ok(Part::Text { text });
    }
    let (data, mime) = (STANDARD.encode(fs_err::read(path)?), mime.to_owned());
    Ok(match mime.as_str() {
        PDF => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Part::Document { mime, name, data }
        }
        image if image.starts_with("image/") => Part::Image { mime, data },
        _ => Part::Audio { mime, data },
    })
}
