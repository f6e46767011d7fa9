//! Whether a result may be served again, and for how long: the one rule, wherever a tool is written about.

use toolgate_types::HumanDuration;

use crate::context::Context;
use crate::file::CategoryName;
use crate::keys::At;
use crate::problem::Problem;
use crate::read::Format;
use crate::source::Span;

/// What was written about it.
#[derive(Debug, Clone)]
pub(crate) struct Caching {
    pub(crate) cacheable: Option<At<bool>>,
    pub(crate) category: Option<At<CategoryName>>,
    pub(crate) ttl: Option<At<HumanDuration>>,
    /// Whether the time was written and is wrong, which was told.
    pub(crate) ttl_told: bool,
}

impl Caching {
    /// Whether anything was written that the rule is about.
    pub(crate) fn is_written(&self) -> bool {
        self.cacheable.is_some() || self.category.is_some() || self.ttl.is_some()
    }

    /// This where it is written, the other where it is not, field by field.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            cacheable: self.cacheable.or(other.cacheable),
            category: self.category.or(other.category),
            ttl: self.ttl.or(other.ttl),
            ttl_told: self.ttl_told || other.ttl_told,
        }
    }

    /// How long a result may be served again; `None` where it may not. What is wrong is told.
    pub(crate) fn ttl(&self, cx: &mut Context<'_>) -> Option<HumanDuration> {
        let cacheable = self.cacheable.as_ref().filter(|at| at.value);
        let mutation = self.category.as_ref().is_some_and(|at| at.value == CategoryName::Mutation);
        match (cacheable, &self.ttl) {
            (Some(cacheable), _) if mutation => {
                let message = format!("a mutation cannot be cached{}", cx.whereabouts());
                cx.error(cacheable.span, message, "remove `cacheable`, or correct `category`");
                None
            }
            (Some(_), None) if self.ttl_told => None,
            (Some(cacheable), None) => {
                let message = format!("`cacheable` needs `cache_ttl`{}", cx.whereabouts());
                let hint = format!("add `{}`, in seconds", spelled("cache_ttl", "3600", cacheable.span, cx));
                cx.error(cacheable.span, message, hint);
                None
            }
            (Some(_), Some(ttl)) => Some(ttl.value),
            // `cacheable: false` with the time beside it turns a cache off for a while.
            (None, Some(_)) if self.cacheable.is_some() => None,
            (None, Some(ttl)) => {
                let message =
                    format!("`cache_ttl` without `cacheable: true` does nothing{}", cx.whereabouts());
                let hint = format!("add `{}`, or remove it", spelled("cacheable", "true", ttl.span, cx));
                cx.push(Problem::warning(ttl.key_span, message).hint(hint));
                None
            }
            (None, None) => None,
        }
    }
}

/// A key with its value, as the file around a place spells it.
fn spelled(key: &str, value: &str, place: Span, cx: &Context<'_>) -> String {
    match Format::of(cx.sources.get(place.source).name()) {
        Format::Json => format!("\"{key}\": {value}"),
        Format::Yaml | Format::Toml => format!("{key}: {value}"),
    }
}
