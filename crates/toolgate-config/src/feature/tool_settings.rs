//! `toolbox.tools`: settings of single tools. They override the registries.

use std::num::NonZeroU32;

use toolgate_types::tool::{Permission, SettingsMode};
use toolgate_types::{HumanDuration, ToolLimits, ToolName, ToolSettings};

use crate::context::Context;
use crate::feature::servers::ModeName;
use crate::feature::tools::caching::CacheKeys;
use crate::feature::tools::{
    CategoryName, FollowUpFile, PendingEntry, RateLimitFile, resolve_follow_ups, resolve_rate_limit,
};
use crate::keys::{Spanned, into_value, into_values, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// Settings of one tool. Each key overrides the tool's registry entry and its server's
    /// `default_tool_config`.
    struct ToolSettingsFile as "tool settings" {
        /// Name of the tool.
        name: ToolName; required,
        /// Maximum number of concurrent calls of this tool.
        max_instances: NonZeroU32,
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Allows concurrent calls. Default: `true` for MCP tools, `false` for scripts.
        parallel_capable: bool,
        /// With `strict`, the server's `default_tool_config` does not apply to this tool.
        mode: ModeName,
        /// Permissions a caller needs, as `resource:action`. Default: `{server}:{tool}`; for a tool of this
        /// project the permissions in its registry, otherwise `tools:{name}`.
        permissions: Vec<Spanned<Permission>>,
        /// Kind of operation. A `query` is treated as read-only; a `mutation` is never cached.
        category: CategoryName,
        /// Marks calls as safe to repeat. Only idempotent tools are retried.
        idempotent: bool,
        /// Allows caching of results.
        cacheable: bool,
        /// Lifetime of a cached result.
        cache_ttl: HumanDuration,
        /// Rate limit per caller.
        rate_limit: RateLimitFile,
        /// Keywords for tool search.
        tags: Vec<Spanned<String>>,
        /// Suggested next steps, returned to callers as hints.
        follow_ups: Vec<Spanned<FollowUpFile>>,
    }
}

/// Keys with the same meaning in settings and in `tools.json`.
const SHARED_KEYS: [&str; 11] = [
    "max_instances",
    "timeout",
    "parallel_capable",
    "permissions",
    "category",
    "idempotent",
    "cacheable",
    "cache_ttl",
    "rate_limit",
    "tags",
    "follow_ups",
];

impl ConfigBuilder {
    pub(crate) fn add_settings(&mut self, file: ToolSettingsFile, cx: &mut Context<'_>) {
        let written = file.value_spans();
        let Some(name) = file.name else { return };
        self.record_origins(&format!("tool_settings.{}", name.value), written);
        if let Some(first) = self.settings_at.insert(name.value.clone(), self.settings.len()) {
            let message = format!("tool `{}` has settings already", name.value);
            let hint =
                format!("the others are at {}; keep one", cx.sources.location(self.settings[first].span));
            cx.error(name.span, message, hint);
        }
        let caching = CacheKeys {
            ttl_is_invalid: file.cache_ttl.is_none() && file.present_keys.contains(&"cache_ttl"),
            cacheable: file.cacheable,
            category: file.category,
            ttl: file.cache_ttl,
        };
        let settings = ToolSettings {
            limits: ToolLimits {
                max_instances: into_value(file.max_instances),
                timeout: into_value(file.timeout),
                parallel_capable: into_value(file.parallel_capable),
            },
            mode: into_value(file.mode).map(|mode| match mode {
                ModeName::Strict => SettingsMode::Strict,
                ModeName::Dynamic => SettingsMode::Dynamic,
            }),
            permissions: into_values(file.permissions).unwrap_or_default(),
            category: caching.category.as_ref().map(|at| at.value.into()),
            idempotent: into_value(file.idempotent),
            // Resolved later, because a registry may define some of the cache keys.
            cache_ttl: None,
            rate_limit: file.rate_limit.and_then(|at| resolve_rate_limit(at.value)),
            tags: into_values(file.tags).unwrap_or_default(),
            follow_ups: resolve_follow_ups(file.follow_ups),
            name: name.value,
        };
        self.settings.push(PendingEntry { value: settings, caching, span: name.span });
    }

    /// Applies the operator's settings to the project's own tools, key by key.
    pub(crate) fn apply_settings(&mut self, cx: &mut Context<'_>) {
        for PendingEntry { value: settings, caching, span } in &mut self.settings {
            let name = settings.name.clone();
            let own = self.tool_at.get(&name).map(|at| &mut self.tools[*at]);
            cx.labels.push(format!("tool settings `{name}`"));
            let whole = match &own {
                Some(own) => caching.clone().or(own.caching.clone()),
                None => caching.clone(),
            };
            // Without cache keys here, the registry's own value applies.
            let cache_ttl = caching.is_set().then(|| whole.resolve_ttl(cx));
            settings.cache_ttl = cache_ttl.flatten();
            cx.labels.pop();
            let Some(PendingEntry { value: tool, .. }) = own else { continue };
            if settings.mode == Some(SettingsMode::Dynamic) {
                let message = format!("tool `{name}` belongs to this project and cannot be `dynamic`");
                cx.error(*span, message, "a project's own tools are always strict; remove `mode`");
            }
            let origins = &mut self.origins;
            let mut is_written = |key: &str| {
                let place = origins.get(&format!("tool_settings.{name}.{key}")).copied();
                origins.extend(place.map(|place| (format!("tools.{name}.{key}"), place)));
                place.is_some()
            };
            let written = SHARED_KEYS.map(|key| (key, is_written(key)));
            let has = |key: &str| written.contains(&(key, true));
            tool.limits = settings.limits.or(tool.limits);
            if has("permissions") {
                tool.permissions.clone_from(&settings.permissions);
            }
            if has("tags") {
                tool.tags.clone_from(&settings.tags);
            }
            if has("follow_ups") {
                tool.follow_ups.clone_from(&settings.follow_ups);
            }
            tool.category = settings.category.or(tool.category);
            tool.idempotent = settings.idempotent.unwrap_or(tool.idempotent);
            tool.cache_ttl = cache_ttl.unwrap_or(tool.cache_ttl);
            tool.rate_limit = settings.rate_limit.or(tool.rate_limit);
        }
    }
}

#[cfg(test)]
mod tests;
