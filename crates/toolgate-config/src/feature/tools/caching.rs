//! `cacheable`, `category` and `cache_ttl`. The same rules apply in registries and in tool settings.

use toolgate_types::HumanDuration;

use super::CategoryName;
use crate::context::Context;
use crate::keys::Spanned;
use crate::problem::Problem;
use crate::read::FileFormat;
use crate::source::Span;

/// Keys that determine caching, as written.
#[derive(Debug, Clone)]
pub(crate) struct CacheKeys {
    pub(crate) cacheable: Option<Spanned<bool>>,
    pub(crate) category: Option<Spanned<CategoryName>>,
    pub(crate) ttl: Option<Spanned<HumanDuration>>,
    /// True if `cache_ttl` is present but invalid; the problem is already reported.
    pub(crate) ttl_is_invalid: bool,
}

impl CacheKeys {
    /// Returns true if any of the keys is set.
    pub(crate) fn is_set(&self) -> bool {
        self.cacheable.is_some() || self.category.is_some() || self.ttl.is_some()
    }

    /// Fills in missing keys from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            cacheable: self.cacheable.or(other.cacheable),
            category: self.category.or(other.category),
            ttl: self.ttl.or(other.ttl),
            ttl_is_invalid: self.ttl_is_invalid || other.ttl_is_invalid,
        }
    }

    /// Returns the lifetime of cached results, `None` if results are not cached. Reports contradictory keys.
    pub(crate) fn resolve_ttl(&self, cx: &mut Context<'_>) -> Option<HumanDuration> {
        let cacheable = self.cacheable.as_ref().filter(|at| at.value);
        let mutation = self.category.as_ref().is_some_and(|at| at.value == CategoryName::Mutation);
        match (cacheable, &self.ttl) {
            (Some(cacheable), _) if mutation => {
                let message = format!("a mutation cannot be cached{}", cx.location_suffix());
                cx.error(cacheable.span, message, "remove `cacheable`, or correct `category`");
                None
            }
            (Some(_), None) if self.ttl_is_invalid => None,
            (Some(cacheable), None) => {
                let message = format!("`cacheable` needs `cache_ttl`{}", cx.location_suffix());
                let hint =
                    format!("add `{}`, in seconds", format_key("cache_ttl", "3600", cacheable.span, cx));
                cx.error(cacheable.span, message, hint);
                None
            }
            (Some(_), Some(ttl)) => Some(ttl.value),
            // `cacheable: false` next to `cache_ttl` is a common way to turn a cache off temporarily.
            (None, Some(_)) if self.cacheable.is_some() => None,
            (None, Some(ttl)) => {
                let message =
                    format!("`cache_ttl` without `cacheable: true` does nothing{}", cx.location_suffix());
                let hint = format!("add `{}`, or remove it", format_key("cacheable", "true", ttl.span, cx));
                cx.push(Problem::warning(ttl.key_span, message).hint(hint));
                None
            }
            (None, None) => None,
        }
    }
}

/// Formats a key and its value in the syntax of the file at a location.
fn format_key(key: &str, value: &str, place: Span, cx: &Context<'_>) -> String {
    match FileFormat::of(cx.sources.get(place.source).name()) {
        FileFormat::Json => format!("\"{key}\": {value}"),
        FileFormat::Yaml | FileFormat::Toml => format!("{key}: {value}"),
    }
}
