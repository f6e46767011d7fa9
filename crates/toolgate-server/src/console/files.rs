//! The files of the console, compressed once.

use std::io::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderValue};
use toolgate_console::assets::ASSETS;

use crate::auth::HttpError;
use crate::response::{Response, ResponseBody};
use crate::route::AdmittedRequest;

/// The name contains the hash of the content, so it never changes.
const KEEP: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The compressed files, by their paths. Pages are not compressed: they have a secret token beside text that others
/// chose, and the compressed length would tell about it.
static COMPRESSED: LazyLock<Vec<(&str, Bytes)>> = LazyLock::new(|| {
    let compress = |content: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder
            .write_all(content.as_bytes())
            .and_then(|()| encoder.finish())
            .expect("a vector takes all bytes")
    };
    ASSETS.all().iter().map(|asset| (asset.path.as_str(), compress(asset.content).into())).collect()
});

/// Serves a file of the console.
pub(super) async fn asset(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let asset =
        ASSETS.find(&name).ok_or_else(|| HttpError::not_found(format!("there is no file `{name}`")))?;
    let accepted = request.parts.headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let gzip = accepted.is_some_and(|accepted| accepted.split(',').any(|one| one.trim().starts_with("gzip")));
    let compressed = COMPRESSED.iter().find(|(path, _)| gzip && *path == asset.path);
    let body = compressed.map_or(Bytes::from_static(asset.content.as_bytes()), |(_, bytes)| bytes.clone());
    let mut response = Response::new(ResponseBody::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, KEEP);
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if compressed.is_some() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}
