//! `groups`: named sets of callers, for permissions and for rules of the policy.

use std::sync::Arc;

use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Group, GroupName};

use crate::context::Context;
use crate::keys::{OneOrMany, Spanned, closest_match, into_values, keys, read_by_parsing};
use crate::resolve::ConfigBuilder;

keys! {
    /// A group of callers. `groups` of a caller, of a certificate and of a token issuer make callers its members.
    struct GroupFile as "group" {
        /// Permissions of every member, in addition to its own. Without this key, only rules of the policy can
        /// refer to the group: `principal in Group::"ops"`.
        permissions: Vec<Spanned<PermissionPattern>>,
    }
}

read_by_parsing! {
    GroupName: "the name of a group", { "type": "string", "pattern": "^[A-Za-z0-9._@:/-]{1,128}$" };
}

impl ConfigBuilder {
    /// Adds a group. Must come before everything that refers to groups.
    pub(crate) fn add_group(&mut self, name: &str, file: Spanned<GroupFile>, cx: &mut Context<'_>) {
        match name.parse::<GroupName>() {
            Ok(name) => {
                self.record_origins(&format!("groups.{name}"), file.value.value_spans());
                let permissions = into_values(file.value.permissions).unwrap_or_default();
                self.groups.push(Arc::new(Group { name, permissions }));
            }
            Err(error) => {
                cx.error(file.key_span, format!("`{name}` is not the name of a group"), format!("{error}"));
            }
        }
    }

    /// Returns the named groups, each once, and reports those that do not exist.
    pub(crate) fn find_groups(
        &self,
        named: Option<Spanned<OneOrMany<GroupName>>>,
        cx: &mut Context<'_>,
    ) -> Vec<Arc<Group>> {
        let mut found: Vec<Arc<Group>> = Vec::new();
        for name in named.into_iter().flat_map(|at| at.value.0) {
            let Some(group) = self.find_group(&name, cx) else { continue };
            if !found.contains(&group) {
                found.push(group);
            }
        }
        found
    }

    /// Returns the group with this name, or reports that it does not exist.
    pub(crate) fn find_group(&self, name: &Spanned<GroupName>, cx: &mut Context<'_>) -> Option<Arc<Group>> {
        let found = self.groups.iter().find(|group| group.name == name.value);
        if found.is_none() {
            let names: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
            let hint = match closest_match(name.value.as_str(), names) {
                Some(close) => format!("did you mean `{close}`?"),
                None => "declare it in `groups`".to_owned(),
            };
            let message = format!("there is no group `{}`{}", name.value, cx.location_suffix());
            cx.error(name.span, message, hint);
        }
        found.map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{config, loaded, messages};

    #[test]
    fn callers_are_in_groups() {
        let text = "
groups: {ops: {permissions: [cards:*]}, dev: {}}
callers: [{id: ann, groups: [ops, dev, ops], person: ann@example.com}, {id: bob, groups: dev}]
";
        let loaded = loaded(&[("toolgate.yaml", text)], &[]);
        assert_eq!(messages(&loaded), "");
        let config = config(&loaded);
        insta::assert_snapshot!(format!("{} {}", config["groups"], config["callers"]), @r#"[{"name":"ops","permissions":["cards:*"]},{"name":"dev"}] [{"id":"ann","permissions":[],"groups":["ops","dev"],"person":"ann@example.com"},{"id":"bob","permissions":[],"groups":["dev"]}]"#);
        assert!(loaded.config.unwrap().callers[0].has_permission(&"cards:create".parse().unwrap()));
    }

    #[test]
    fn reports_groups_that_do_not_exist() {
        let text = "
groups: {ops: {permissions: [cards]}, a b: {}}
callers: [{id: ann, groups: [opps, sales]}]
serve: {jwt: [{issuer: 'https://id.test', audience: [a], groups_claim: groups, groups: {x: op}}]}
";
        insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", text)], &[])), @"
        error toolgate.yaml:2:30 `cards` is not a permission pattern in group `ops` (a permission is given as `resource:action`, each a word or `*`, such as `cards:*`)
        error toolgate.yaml:2:39 `a b` is not the name of a group (the name of a group has 1 to 128 letters, digits and `. _ - @ : /`)
        error toolgate.yaml:3:30 there is no group `opps` (did you mean `ops`?)
        error toolgate.yaml:3:36 there is no group `sales` (declare it in `groups`)
        error toolgate.yaml:4:92 there is no group `op` (did you mean `ops`?)
        ");
    }

    #[test]
    fn groups_of_tokens_need_a_claim_and_a_mapping() {
        let issuer = |keys: &str| {
            let text = format!(
                "groups: {{ops: {{}}}}\nserve: {{jwt: [{{issuer: 'https://id.test', audience: [a], {keys}}}]}}\n"
            );
            messages(&loaded(&[("toolgate.yaml", &text)], &[]))
        };
        assert_eq!(issuer("groups_claim: roles, groups: {platform: ops}, person_claim: email"), "");
        insta::assert_snapshot!([issuer("groups_claim: roles"), issuer("groups: {platform: ops}")].join("\n"), @"
        error toolgate.yaml:2:15 `groups_claim` of a token issuer has no effect without `groups` (map values of the claim to groups: `groups: {platform-team: ops}`)
        error toolgate.yaml:2:15 `groups` of a token issuer has no effect without `groups_claim` (name the claim with the groups, such as `groups_claim: groups`)
        ");
    }
}
