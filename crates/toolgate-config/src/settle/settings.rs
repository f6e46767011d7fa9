//! Entries of `toolbox.tools` become settings, which count more than what a registry says.

use toolgate_types::tool::SettingsMode;
use toolgate_types::{ToolLimits, ToolSettings};

use crate::context::Context;
use crate::file::{ModeName, ToolSettingsFile};
use crate::settle::caching::Caching;
use crate::settle::tool::{follow_ups, rate_limit};
use crate::settle::{Draft, Drafted, value, values};

/// The keys that mean the same in settings and in `tools.json`.
const SHARED: [&str; 11] = [
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

impl Draft {
    pub(crate) fn settings(&mut self, file: ToolSettingsFile, cx: &mut Context<'_>) {
        let written = file.written();
        let Some(name) = file.name else { return };
        self.origins(&format!("tool_settings.{}", name.value), written);
        if let Some(first) = self.settings_at.insert(name.value.clone(), self.settings.len()) {
            let message = format!("tool `{}` has settings already", name.value);
            let hint = format!("the others are at {}; keep one", cx.sources.place(self.settings[first].span));
            cx.error(name.span, message, hint);
        }
        let caching = Caching {
            ttl_told: file.cache_ttl.is_none() && file.given.contains(&"cache_ttl"),
            cacheable: file.cacheable,
            category: file.category,
            ttl: file.cache_ttl,
        };
        let settings = ToolSettings {
            limits: ToolLimits {
                max_instances: value(file.max_instances),
                timeout: value(file.timeout),
                parallel_capable: value(file.parallel_capable),
            },
            mode: value(file.mode).map(|mode| match mode {
                ModeName::Strict => SettingsMode::Strict,
                ModeName::Dynamic => SettingsMode::Dynamic,
            }),
            permissions: values(file.permissions).unwrap_or_default(),
            category: caching.category.as_ref().map(|at| at.value.into()),
            idempotent: value(file.idempotent),
            // Known when the registries were read: they may hold the other half of it.
            cache_ttl: None,
            rate_limit: file.rate_limit.and_then(|at| rate_limit(at.value)),
            tags: values(file.tags).unwrap_or_default(),
            follow_ups: follow_ups(file.follow_ups),
            name: name.value,
        };
        self.settings.push(Drafted { value: settings, caching, span: name.span });
    }

    /// The operator's settings count more than a registry, field by field.
    pub(super) fn settings_over_tools(&mut self, cx: &mut Context<'_>) {
        for Drafted { value: settings, caching, span } in &mut self.settings {
            let name = settings.name.clone();
            let own = self.tool_at.get(&name).map(|at| &mut self.tools[*at]);
            cx.labels.push(format!("tool settings `{name}`"));
            let whole = match &own {
                Some(own) => caching.clone().or(own.caching.clone()),
                None => caching.clone(),
            };
            // Where nothing is written here, the registry has had its say already.
            let cache_ttl = caching.is_written().then(|| whole.ttl(cx));
            settings.cache_ttl = cache_ttl.flatten();
            cx.labels.pop();
            let Some(Drafted { value: tool, .. }) = own else { continue };
            if settings.mode == Some(SettingsMode::Dynamic) {
                let message = format!("tool `{name}` is one of your own and cannot be `dynamic`");
                cx.error(*span, message, "own tools are always strict; remove `mode`");
            }
            let origins = &mut self.origins;
            let mut is_written = |key: &str| {
                let place = origins.get(&format!("tool_settings.{name}.{key}")).copied();
                origins.extend(place.map(|place| (format!("tools.{name}.{key}"), place)));
                place.is_some()
            };
            let written = SHARED.map(|key| (key, is_written(key)));
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
